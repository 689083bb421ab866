"""Applied positions that a restored table brings back: their channels stop as `Rewound`, until an operator decides.

What was applied since is gone with the later state. So the property beside the position says that the table was
restored, which `sterna.pipelines.publish.decide` takes for neither true nor harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import uuid4

from sterna.catalog.model import ICEBERG_TABLE, Content, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import SternaError
from sterna.iceberg.metadata.new_version import new_metadata_uri, with_properties
from sterna.iceberg.metadata.table import read_table_metadata
from sterna.maintenance.restore.files import localized_uris
from sterna.maintenance.restore.model import Selected
from sterna.pipelines.publish.model import applied_positions, restored_channels, restored_properties
from sterna.replication.replica.point_in_time import PastMain
from sterna.replication.replica.region import RegionContext


def rewound_channels(restored: Mapping[str, str], newest: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the channels whose applied position goes back with a table, or went back and is still to be decided on.

    Args:
        restored: the table's properties as they come back.
        newest: its properties as they are now, or were last; None: unknown, so that each position may have gone on.
    """
    back = applied_positions(restored)
    if newest is None:
        return tuple(sorted(back))
    last = applied_positions(newest)
    moved = {channel for channel in {*back, *last} if back.get(channel, "") != last.get(channel, "")}
    # After an earlier restore the positions are equal: its mark alone says that the channel had gone on.
    return tuple(sorted(moved | restored_channels(newest)))


def find_rewound(context: RegionContext, past: PastMain, selected: Selected, content: Content) -> tuple[str, ...]:
    """Return the channels of a restored table whose applied position goes back.

    Args:
        context: the region.
        past: the commit of `main` as of which it is restored.
        selected: the table; under another name it is another table, of which no channel is.
        content: what `main` is to hold.

    Raises:
        CatalogError: the catalog doesn't answer.
        StoreError, BrokenMetadata: the metadata.json that comes back can't be read.
    """
    newest = selected.present
    if selected.content.kind != ICEBERG_TABLE or selected.source != selected.target:
        return ()
    if newest is None and (drop := past.drops.get(selected.source)):
        newest = context.primary.contents(SOURCE_BRANCH, drop.parent, [selected.source]).get(selected.source)
    if newest is not None and newest.metadata_location == selected.content.metadata_location:
        return ()
    restored = _read_properties(context, content.metadata_location or "")
    last = None if newest is None else _newest_properties(context, key_name(selected.source), newest)
    return rewound_channels(restored, last)


def write_rewound(context: RegionContext, content: Content, channels: tuple[str, ...], now: datetime) -> Content:
    """Write a table's metadata.json once more, with channels that are rewound; return what names it.

    Args:
        context: a region whose stores have it.
        content: the catalog's entry of the table.
        channels: their whole names.
        now: the time.

    Raises:
        StoreError: it can't be read or written.
        BrokenMetadata: it is no metadata.json of a table.
    """
    uri, limits = content.metadata_location or "", context.region.limits
    data = context.objects.read(uri)
    new_uri = new_metadata_uri(data, uri, uuid4(), limits)
    now_ms = int(now.timestamp() * 1000)
    context.objects.write_new(new_uri, with_properties(data, uri, restored_properties(channels), now_ms, limits))
    return content.with_metadata_location(new_uri)


def _newest_properties(context: RegionContext, name: str, newest: Content) -> Mapping[str, str] | None:
    """Return the properties of a version, at home or in any region; None where none of these has it."""
    for uri in (newest.metadata_location or "", *localized_uris(context, name, newest).values()):
        try:
            return _read_properties(context, uri)
        except SternaError:
            continue
    return None


def _read_properties(context: RegionContext, uri: str) -> Mapping[str, str]:
    return read_table_metadata(context.objects.read(uri), uri, context.region.limits).properties
