"""What one table's files may cost: settings of a region, each far above what honest tables need.

A table's writers are trusted less than the operator. A few kilobytes of crafted metadata (a bomb in an Avro block or a
gzip, false lengths, millions of empty objects) must not take a worker's memory. A file over a limit holds its table,
and the error names the setting to raise where the table is legitimate.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from sterna.config.yaml import StrictModel
from sterna.errors import OverLimit

MIB: Final = 1 << 20

_Limit = Annotated[int, Field(ge=1, le=1 << 62)]


class Limits(StrictModel):
    """The limits of one region.

    Args:
        file_bytes: any metadata or delete file, as it is stored; a manifest, list, position delete file or Puffin, or a
            metadata.json.
        json_bytes: a metadata.json after gzip, or a Puffin footer; its characters in memory, where one emoji makes four
            bytes of each.
        json_objects: objects and arrays of one of these; a snapshot has three, and each takes up to half a KiB.
        json_values: values of one of these; a snapshot has about thirty.
        ratio: decompressed bytes for each stored one; of an Avro file or a metadata.json, once past a few MiB.
        block_bytes: one Avro block, decompressed; writers make blocks of 16 to 64 KiB.
        block_records: records of one Avro block; writers put some hundreds into one.
        inflated_bytes: all blocks of one Avro file, decompressed; they are never in memory together.
        records: entries of one manifest.
        manifests: manifests of one manifest list.
        delete_rows: rows of one position delete file; sorting them takes some 20 bytes a row.
        delete_bytes: all columns of one position delete file after their codec; in ORC, the memory that its rows take.
        plan_bytes: estimated memory of all files that a plan holds at once; a larger one is read when
            no other is.
    """

    file_bytes: _Limit = 512 * MIB
    json_bytes: _Limit = 256 * MIB
    json_objects: _Limit = 1_000_000
    json_values: _Limit = 12_000_000
    ratio: _Limit = 200
    block_bytes: _Limit = 32 * MIB
    block_records: _Limit = 500_000
    inflated_bytes: _Limit = 2048 * MIB
    records: _Limit = 20_000_000
    manifests: _Limit = 1_000_000
    delete_rows: _Limit = 1 << 25
    delete_bytes: _Limit = 4096 * MIB
    plan_bytes: _Limit = 512 * MIB

    def check(self, name: str, count: int, unit: str, file: str) -> None:
        """Refuse what is over a limit.

        Args:
            count: how much there is; or more than the limit, where counting was given up.
            unit: what was counted, for people.
            file: the URI of the file.

        Raises:
            OverLimit: it is more than the setting allows.
        """
        if count > getattr(self, name):
            raise self.over_limit(name, f"{count} {unit}", file)

    def over_limit(self, name: str, description: str, file: str) -> OverLimit:
        """Return the error that names a limit, the file and the setting."""
        return OverLimit(
            f"{description}: over the limit of {getattr(self, name)} (limits.{name} of the region in the registry: "
            "raise it if the table is honest)",
            file=file,
        )


DEFAULT_LIMITS: Final = Limits()
"""The limits of a region that sets none."""
