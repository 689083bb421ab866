"""Faults that are planted in sterna, one at a time, to see that the tests of every run find each: see `__main__`."""
