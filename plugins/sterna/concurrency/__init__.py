"""Threads, cancellation, and work that is shared by equal requests."""
