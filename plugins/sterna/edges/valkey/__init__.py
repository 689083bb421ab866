"""Valkey or Redis: where features are kept for online reads."""
