"""What runs in a process of its own: reading pinned tables and running one query over them.

It imports heavy libraries at the top: nobody else imports it.
"""
