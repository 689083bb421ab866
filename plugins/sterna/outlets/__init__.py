"""Outlets: events that are sent on to webhooks, in order, and at least once."""
