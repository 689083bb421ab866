"""The one way in which sterna puts rows on `main`: staged under an id, audited, published once.

`model.py` and `decide.py` are pure: what a table's metadata says of a step, and what follows. `protocol.py` looks,
decides and acts, again and again. `spark.py` alone calls Iceberg.
"""
