"""How a sync's work is done: copies, Spark or local workers, and whose failure an error is."""
