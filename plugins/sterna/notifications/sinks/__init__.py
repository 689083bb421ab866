"""Sinks: events that are sent on to webhooks and brokers, in order, and at least once."""
