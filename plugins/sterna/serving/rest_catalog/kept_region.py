"""A region whose connections live as long as the process, and outlive a failover of the catalog that takes commits."""

from __future__ import annotations

from sterna.replication.replica.region import RegionContext


class KeptRegion:
    """A region that is kept open; may be used by any number of threads.

    Args:
        context: the region, with connections of its own.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context

    def __call__(self) -> RegionContext:
        """Return the region."""
        return self._context

    def renew(self) -> None:
        """Have the catalog that takes commits looked up again; requests at work go on with the connections they have.

        Which region's it is is found once for each set of connections, and may have changed since.
        """
        self._context = self._context.with_new_connections()
