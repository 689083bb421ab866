"""Keep tables on main in shape, as far as their files lie in this Airflow's region.

Does nothing until the services file has a section maintenance; section [sterna] of Airflow's configuration says when.
"""

from __future__ import annotations

from sterna.airflow.dags import addon_dag

dag = addon_dag("maintenance")
