-- Run by psql each time a region of docker-compose.yml comes up: a database for the catalog and one for Airflow, each with a login of its
-- name. What is there stays as it is. Passwords come from the environment, so that none stands here or on a command line.
\getenv nessie_password NESSIE_DATABASE_PASSWORD
\getenv airflow_password AIRFLOW_DATABASE_PASSWORD

SELECT format('CREATE ROLE nessie LOGIN PASSWORD %L', :'nessie_password')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'nessie') \gexec
SELECT format('CREATE ROLE airflow LOGIN PASSWORD %L', :'airflow_password')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'airflow') \gexec

SELECT 'CREATE DATABASE nessie OWNER nessie' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'nessie') \gexec
SELECT 'CREATE DATABASE airflow OWNER airflow' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'airflow') \gexec
