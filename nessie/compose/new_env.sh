#!/bin/sh
# Writes .env, which docker-compose.yml reads, with new passwords and keys into the current folder; never over an old one,
# because the databases' volumes keep the old passwords.
set -euC
umask 077

hex() { od -A n -N "$1" -t x1 /dev/urandom | tr -d ' \n'; }

for region in US EU; do
  for login in POSTGRES REPLICATION RESTAPI RAFT NESSIE_DATABASE AIRFLOW_DATABASE; do
    part=${login%_DATABASE}
    echo "${part}_${region}${login#"$part"}_PASSWORD=$(hex 18)"
  done
  echo "S3_${region}_ACCESS_KEY=STERNA$(hex 7)"
  echo "S3_${region}_SECRET_KEY=$(hex 20)"
  # Fernet takes 32 bytes in base64's spelling for URLs.
  echo "AIRFLOW_${region}_FERNET_KEY=$(head -c 32 /dev/urandom | base64 | tr '+/' '-_')"
  echo "AIRFLOW_${region}_SECRET_KEY=$(hex 32)"
  echo "AIRFLOW_${region}_JWT_SECRET=$(hex 64)"
done > .env
