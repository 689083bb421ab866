"""Reads and appends with PyIceberg over s3fs, which has each request signed: a program of another environment.

`s3fs` wants an older botocore than the gateway's environment has. Standard input: JSON with `uri` and `token` of an
address, `table`, and `ids` of the rows to append. Standard output: JSON, the ids `before` and `after`.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog


def main() -> None:
    request = json.load(sys.stdin)
    delegation = {"header.X-Iceberg-Access-Delegation": "remote-signing"}
    table = RestCatalog("eu", uri=request["uri"], token=request["token"], **delegation).load_table(request["table"])
    before = table.scan().to_arrow()["id"].to_pylist()
    ids = request["ids"]
    table.append(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{one}" for one in ids]}))
    after = table.scan().to_arrow()["id"].to_pylist()
    json.dump({"before": sorted(before), "after": sorted(after)}, sys.stdout)


if __name__ == "__main__":
    main()
