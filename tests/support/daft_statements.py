"""Reads and writes with Daft over PyIceberg: a program of another environment.

Daft wants an older pyarrow than the gateway's environment has. Standard input: JSON with `store`, PyIceberg's
properties of an S3 endpoint; `location`, the URI of a metadata.json, or `uri` of an address and `table`; and `rows` to
write with `mode`, if any. Standard output: JSON, the `rows` of the table afterwards, or `error`, what Daft says.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def open_table(request: dict[str, Any]) -> Any:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.table import StaticTable

    if "location" in request:
        return StaticTable.from_metadata(request["location"], request["store"])
    return RestCatalog("eu", uri=request["uri"], **request["store"]).load_table(request["table"])


def io_config(store: dict[str, str]) -> Any:
    """Return Daft's own settings of the store: `rclone serve s3` refuses a suffix that is longer than the file."""
    from daft.io import IOConfig, S3Config

    return IOConfig(
        s3=S3Config(
            endpoint_url=store["s3.endpoint"],
            region_name=store["s3.region"],
            key_id=store["s3.access-key-id"],
            access_key=store["s3.secret-access-key"],
        ),
        disable_suffix_range=True,
    )


def main() -> None:
    import daft

    request = json.load(sys.stdin)
    config = io_config(request["store"])
    try:
        table = open_table(request)
        if "rows" in request:
            daft.from_pylist(request["rows"]).write_iceberg(table, mode=request["mode"], io_config=config)
            table = open_table(request)
        rows = [list(row.values()) for row in daft.read_iceberg(table, io_config=config).to_pylist()]
    except Exception as error:  # noqa: BLE001 - it is compared
        json.dump({"error": f"{type(error).__name__}: {error}"}, sys.stdout)
    else:
        json.dump({"rows": rows}, sys.stdout, default=str)


if __name__ == "__main__":
    main()
