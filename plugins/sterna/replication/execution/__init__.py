"""Execution of a sync's work: copies, Spark or local workers, and the attribution of failures."""
