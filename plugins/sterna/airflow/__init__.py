"""What Airflow loads of sterna: operators, DAG factories, pages, commands and connection forms."""
