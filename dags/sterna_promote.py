"""Make this Airflow's region the primary, after a person's approval.

Only where each region has a catalog of its own.
"""

from __future__ import annotations

from sterna.airflow.promotion import promotion_dag

dag = promotion_dag()
