"""The one way in which sterna puts rows on `main`: staged under an id, audited, published once.

`model.py` and `decide.py` are pure: the state of a table, and the next action for a step. `protocol.py` loads, decides
and acts in a loop. `spark.py` alone calls Iceberg.
"""
