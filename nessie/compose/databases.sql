-- Run once by psql when docker-compose.yml's Postgres makes its data folder: a database for the catalog and one for each
-- Airflow. The passwords come from the environment, so that none stands here or on a command line.
\getenv nessie_password NESSIE_DATABASE_PASSWORD
\getenv airflow_password AIRFLOW_DATABASE_PASSWORD

CREATE ROLE nessie LOGIN PASSWORD :'nessie_password';
CREATE DATABASE nessie OWNER nessie;

CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE DATABASE airflow_us OWNER airflow;
CREATE DATABASE airflow_eu OWNER airflow;
