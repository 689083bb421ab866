"""Threads, forked processes with limits, cancellation, and work that is shared by all who need the same."""
