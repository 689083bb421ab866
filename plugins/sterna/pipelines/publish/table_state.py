"""A table's metadata as far as publishing goes, read from its file: no Spark is needed."""

from __future__ import annotations

import json

from sterna.errors import BrokenMetadata
from sterna.iceberg.json_text import read_document
from sterna.pipelines.publish.model import TableState
from sterna.replication.replica.region import RegionContext


def read_state(context: RegionContext, table: str, metadata: str) -> TableState:
    """Return a table's state by its metadata.json.

    Args:
        context: the region, whose stores have it.
        table: its name in error messages.
        metadata: the file's URI.

    Raises:
        BrokenMetadata: it doesn't parse.
        StoreError: it can't be read.
    """
    document = read_document(context.objects.read(metadata), metadata, context.region.limits)
    try:
        parsed = json.loads(document.text)
        return TableState.parse(parsed)
    except (ValueError, AttributeError) as error:
        raise BrokenMetadata("the table's metadata doesn't parse", table=table, file=metadata) from error
    except BrokenMetadata as error:
        raise BrokenMetadata(error.message, table=table, file=metadata) from None
