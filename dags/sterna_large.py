"""Copy what this Airflow's region has in transit: the tables of which much is to be copied.

The large lane beside sterna_sync.py, set up by section [sterna] of Airflow's configuration.
"""

from __future__ import annotations

from sterna.airflow.dags import bulk_dag

dag = bulk_dag()
