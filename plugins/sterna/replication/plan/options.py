"""What a caller may ask of one sync."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sterna.config.registry.model import Region


@dataclass(frozen=True)
class SyncOptions:
    """What a caller may ask of one sync.

    Args:
        tables: only these key names (patterns as in a policy), as if nothing else had changed; empty: all. The
            watermark stays.
        full: compare every key of `main`, not only those that changed since the watermark.
        restore_branch: first put back what others changed on the replica branch, and then compare every key.
        reseed_from: the commit of `main` that an operator takes for the truth, though `main` has left the watermark; ""
            for none.
        generation: the localized files of the tables asked for are to be of this generation at least
            (`sterna.config.registry.fingerprint`); every key is compared then. 0: they stay as they are.
        bytes_per_batch: how many bytes one copy batch should carry.
        files_per_batch: how many files one copy batch should carry.
        seed_group: how many tables a first seed publishes at once.
        lane: `small`: leave what is large to the large lane, and publish the rest. `large`: copy what is in transit,
            and publish nothing. `all`: one plan takes everything; a whole sync takes one lane after the other.
    """

    tables: tuple[str, ...] = ()
    full: bool = False
    restore_branch: bool = False
    reseed_from: str = ""
    generation: int = 0
    bytes_per_batch: int = 4 * 1024**3
    files_per_batch: int = 5_000
    seed_group: int = 50
    lane: Literal["all", "small", "large"] = "all"

    def defers_large(self, region: Region) -> bool:
        """Whether a plan leaves large copies to the large lane."""
        return self.lane == "small" and region.bulk_copy_threshold > 0
