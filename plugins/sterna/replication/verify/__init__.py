"""Verifying a replica, by other means than those that made it.

What localizing wrote is judged by code that localizing does not run, so that a fault of its own is found here:

* Position deletes are read row by row, Parquet and ORC by Arrow's readers. Localizing runs pyorc for ORC.
* Deletion vectors: the Puffin footer has a reader of its own, and so has metadata.json.
* A deep check decodes whole records of manifests and lists by fastavro, on both sides, and compares all that they hold.
* URIs are judged local or foreign by the registry's prefixes, and taken back to `main` by the mapping's inverse.
* Sizes are read from the stores. What a sync keeps beside the replica about its runs is not read; its commits record
  which version of `main` each table is at.

These are shared with plan and localize, and what is wrong in them can stay unseen:

* The registry and the mapping of URIs, which define what is right. The mapping also decides whether a delete names a
  file where this region reads it, and where the files of a promoted table were.
* Reading Avro: the container (blocks, codecs, limits), and without a deep check the walk over raw records, since
  tables of millions of files can't be read record by record. Tests hold the walk against fastavro.
* ORC in C++: Arrow has another build of the library that pyorc has.
* The limits (`config/limits.py`), and the localizer's version, which is part of the paths of localized files.

No editor of files is imported: import-linter lists the readers that may be, and rejects all other modules of `iceberg`
and `sync`.
"""
