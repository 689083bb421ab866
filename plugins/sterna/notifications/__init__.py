"""Events of a replica branch: the change log, subscriptions, sinks."""
