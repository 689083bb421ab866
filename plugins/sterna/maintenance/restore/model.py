"""What is asked to be restored, and what a restore does; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sterna.catalog.model import Content, Key, Put
from sterna.errors import UsageError

HOME = "home"
"""Where a restored table's files lie: at the very places that `main` named."""


@dataclass(frozen=True)
class RestoreRequest:
    """What is to be restored.

    Args:
        as_of: the moment of `main`, as `sterna.replication.replica.point_in_time` takes it.
        names: key names of tables, views and namespaces.
        everything: all of them, in place of names.
        over: tables that live on `main` are replaced, too; with a region as the source also those that are unchanged.
        new_name: key name that the one table is put under; "" for its own.
        source: the region whose copies are taken, or `HOME`; "" for home first, and then each region.

    Raises:
        UsageError: parts of it contradict one another, or a name is empty.
    """

    as_of: str
    names: tuple[str, ...] = ()
    everything: bool = False
    over: bool = False
    new_name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if bool(self.names) == self.everything:
            raise UsageError("name tables or namespaces to restore, or --all")
        if not all(self.names):
            raise UsageError("a name of what is to be restored is empty", hint="--all is everything")
        if self.new_name and len(self.names) != 1:
            raise UsageError("--as goes with one table")

    @property
    def takes_copies(self) -> bool:
        """Whether files are taken from a region's copies alone."""
        return self.source not in ("", HOME)


@dataclass(frozen=True)
class Selected:
    """A table or view that is to be on `main` again.

    Args:
        source: its key at the commit.
        target: its key from now on.
        content: what `main` had of it.
        present: what `main` has under the target now; None: nothing.
    """

    source: Key
    target: Key
    content: Content
    present: Content | None = None


@dataclass(frozen=True)
class Selection:
    """What a restore is to bring back.

    Args:
        tables: tables and views.
        namespaces: those that are gone since, parents first.
        left: by key name, why a table or view stays as it is.
    """

    tables: tuple[Selected, ...] = ()
    namespaces: tuple[Put, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RestoredTable:
    """A table or view that a restore brings back.

    Args:
        key: key name that it has on `main` from now on.
        was: key name that it had at the commit.
        kind: content type.
        metadata: metadata.json that `main` names; in a dry run, the one of which a rewound table's is made.
        files_from: `home`, or the region whose replica has the files.
        rows: of its current snapshot, where that says so.
        data_files: the same of data files.
        replaces: metadata.json of what lives under the key now, "" for nothing.
        commits_since: commits of `main` since that changed what it had under the key.
        dropped: when it was dropped (ISO 8601, UTC), "" where it wasn't.
        rewinds: whole names of the channels whose applied position goes back: they stop as `Rewound`.
        not_at_home: why its files aren't taken from home, "" where they are, or weren't looked for there.
    """

    key: str
    was: str
    kind: str
    metadata: str
    files_from: str
    rows: int | None = None
    data_files: int | None = None
    replaces: str = ""
    commits_since: int = 0
    dropped: str = ""
    rewinds: tuple[str, ...] = ()
    not_at_home: str = ""


@dataclass(frozen=True)
class RestoreReport:
    """What a restore would do, or did.

    Args:
        region: the region that it was run for.
        as_of: hash of the commit of `main`.
        as_of_time: when that was made (ISO 8601, UTC).
        tables: what comes back.
        namespaces: key names of namespaces that come back.
        left: by key name, why a table or view stays as it is.
        commit: hash of the commit on `main`; "" where nothing was committed.
        kept_on: branch of the catalog that keeps the state before; "" where nothing that lives is replaced.
    """

    region: str
    as_of: str
    as_of_time: str
    tables: tuple[RestoredTable, ...] = ()
    namespaces: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    kept_on: str = ""
