"""metadata.json files for tests that every reader accepts: v1 to v3, oddly spaced, with fields at every level that
no spec version knows.

Six snapshots: 1 and 2 in a line whose parent expired, 3 staged from 2, 4 orphaned by a rollback to 2, 5 under a tag, 6
    current.
"""

import json
import re
from typing import Any

VERSIONS = (1, 2, 3)
LOG = (1, 2, 4, 2, 6)
KEPT = frozenset({2, 5, 6})
"""The snapshots that stay when what stands in guillemets is taken out."""

_FIELDS: dict[int, list[dict[str, Any]]] = {
    version: [
        {"id": 1, "name": "id", "required": False, "type": "long", "x-field": [1]},
        {"id": 2, "name": "s3://us/t", "required": False, "type": "string", "doc": "s3://us/t/data"}
        # Defaults are values, not paths.
        | ({"initial-default": "s3://us/t/old", "write-default": "s3://us/t/new"} if version == 3 else {}),
    ]
    for version in VERSIONS
}
_SCHEMA: dict[int, dict[str, Any]] = {
    version: {"type": "struct", "schema-id": 0, "fields": _FIELDS[version]} for version in VERSIONS
}
_HEAD = {
    1: '"last-column-id":2,"schema":%s,"partition-spec":[],',
    2: '"last-sequence-number" : 6,"last-column-id":2,',
    3: '"last-sequence-number" : 6,"next-row-id":60,"encryption-keys":[],"last-column-id":2,',
}
_SEQUENCE = {1: "", 2: '"sequence-number":{0}, ', 3: '"sequence-number":{0}, "first-row-id":{0}0,"added-rows":10, '}
_PARENT = {1: 99, 2: 1, 3: 2, 4: 2, 5: 1, 6: 2}
_TEXT = r"""{
  "format-version" : VERSION, "x-ratio": 1.50e+3, HEAD
  "table-uuid":"9c12d441-03fe-4693-9a96-a0705ddf69c1", "location":"s3:\/\/us/t",
  "last-updated-ms": 6000, "current-schema-id":0, "schemas":[SCHEMA], "default-spec-id":0,
  "partition-specs":[{"spec-id":0,"fields":[],"x-spec":"s3://us/t"}],"last-partition-id":999,
  "default-sort-order-id":0,"sort-orders":[{"order-id":0,"fields":[]}],
  "properties" : { "gc.enabled":"false","owner" :"é\u00e9" },
  "current-snapshot-id":6,
  "refs" : {"main":{"snapshot-id":6,"type":"branch","x-ref":{"a":[]}} ,"old":{"snapshot-id":5,"type":"tag","max-ref-age-ms":7}},
  "snapshots" : [  «1»«,»
    2 ,	«3»  «,»
«4»«,»5
    , 6  ],
  "statistics":[ «{"snapshot-id":1,PUFFIN}»«,» {"snapshot-id":2,PUFFIN,"x-new":[ ]}«,» «{"snapshot-id":4,PUFFIN}» ],
  "partition-statistics" :[«{"snapshot-id":3,PARTITIONS}» ],
  "snapshot-log":[ «{"timestamp-ms":1000,"snapshot-id":1}» «,»«{"snapshot-id":2 , "timestamp-ms":2000}»«,»
    «{"timestamp-ms":4000,"snapshot-id":4}»«,» {"timestamp-ms":5000,"snapshot-id":2,"x-log":{}},{"timestamp-ms":6000,"snapshot-id":6 }],
  "metadata-log" : [ ], "x-object": {"snapshots": [ 1 , 2 ], "snapshot-log":[{}]}
}
"""
_PUFFIN = (
    '"statistics-path":"s3://us/t/s.puffin","file-size-in-bytes":10,"file-footer-size-in-bytes":1,"blob-metadata":[]'
)
_PARTITIONS = '"statistics-path":"s3://us/t/p.parquet" ,"file-size-in-bytes": 20'


def marked(version: int, *, inline: bool = False) -> str:
    """Return the text of a file, with guillemets around what goes when only the snapshots `KEPT` stay.

    Args:
        version: the format version.
        inline: whether snapshots have inline manifests instead of manifest lists; the first has none at all.
    """
    text = _TEXT.replace("HEAD", _HEAD[version].replace("%s", json.dumps(_SCHEMA[version])))
    text = text.replace("PUFFIN", _PUFFIN).replace("PARTITIONS", _PARTITIONS)
    before, snapshots, after = re.split(r'(?s)("snapshots" : \[.*?\],)(?=\n  "statistics")', text)
    snapshots = re.sub(r"\d", lambda match: _snapshot(version, int(match[0]), inline), snapshots)
    return (
        "".join((before, snapshots, after))
        .replace("SCHEMA", json.dumps(_SCHEMA[version]))
        .replace("VERSION", str(version))
    )


def plain(text: str) -> str:
    """Return a marked text as the file is on `main`."""
    return re.sub("[«»]", "", text)


def without_marked(text: str) -> str:
    """Return a marked text without what is marked."""
    return re.sub("«.*?»", "", text)


def _snapshot(version: int, number: int, inline: bool) -> str:
    manifests = ", ".join(f'"s3://us/t/m{name}.avro"' for name in range(1, number))
    return (
        f'{{"snapshot-id" : {number},"parent-snapshot-id":{_PARENT[number]}, {_SEQUENCE[version].format(number)}"timestamp-ms":{number}000,'
        f'"summary":{{"operation":"append"{_wap(number)},"x-note":"see s3://us/t"}} ,"schema-id":0,"x-new": [1,{{"snapshot-id":2}}],'
        + (f'"manifests":[ {manifests}]' if inline else f'"manifest-list":"s3://us/t/snap-{number}.avro"')
        + "}"
    )


def _wap(number: int) -> str:
    return ',"wap.id":"audit-1"' if number == 3 else ""
