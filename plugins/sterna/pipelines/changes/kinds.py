"""The kinds of changes of rows, by the names that users see: a module without Spark, for those that compare no rows."""

CHANGE = "_change_type"
"""The column with the kind of change."""
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_before", "update_after"
NOT_A_KEY = "NotAKey: several rows of a snapshot have the same key"
"""The text by which Spark's error reports that a key isn't one."""
