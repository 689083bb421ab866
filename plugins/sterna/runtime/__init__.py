"""Consumers that follow a log: how they are run, and their status."""
