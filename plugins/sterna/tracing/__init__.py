"""Traces by OpenTelemetry: spans of what is done here, and their export where no Airflow sees to it."""
