"""What runs in a process of its own: reading pinned tables and running one query over them.

It imports heavy libraries at module level: no other package imports it.
"""
