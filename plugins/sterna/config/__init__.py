"""The registry, the services file and limits: what operators write, parsed and validated."""
