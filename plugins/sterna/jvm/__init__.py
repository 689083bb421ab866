"""Java for Spark, Nessie and the capture engine: a runtime, jars, class data sharing."""
