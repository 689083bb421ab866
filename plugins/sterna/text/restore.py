"""What a restore would do or did, what can be restored, and what to do about channels that it rewound, for people."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from sterna.pipelines.ingest.model import split_channel
from sterna.text.lines import NOTHING_CHANGED, join_lines

if TYPE_CHECKING:
    from sterna.maintenance.restore.listing import RestorableVersions
    from sterna.maintenance.restore.model import RestoredTable, RestoreReport
    from sterna.pipelines.publish.model import Channel

_RUN_BOOK = "see Rewound in the run book"


def restored_text(report: RestoreReport) -> str:
    """Return what a restore would do, or did, as lines for people."""
    done = bool(report.commit)
    lines = [
        f"as of {report.as_of}, which was committed at {report.as_of_time}",
        *(f"  namespace {name}" for name in report.namespaces),
        *(line for table in report.tables for line in _table_lines(table)),
        *(f"  {name} stays: {reason}" for name, reason in sorted(report.left.items())),
    ]
    if report.kept_on:
        lines.append(f"the state before is kept on the branch {report.kept_on}")
    if done:
        lines.append(f"commit {report.commit} on main")
    elif report.tables or report.namespaces:
        lines.append(NOTHING_CHANGED)
    else:
        lines.append("there is nothing to restore")
    return join_lines(lines)


def restorable_text(listed: RestorableVersions) -> str:
    """Return what can be restored as lines for people."""
    lines = [
        f"{it.key} {'dropped' if it.dropped else 'changed'} at {it.until}, --as-of {it.as_of}: "
        f"metadata {'is at ' + ', '.join(it.places) if it.places else 'is nowhere'}"
        for it in listed.versions
    ]
    if listed.gap:
        lines.append(f"the list ends here: {listed.gap}")
    return join_lines(lines or ["main has left nothing in that time"])


def rewound_remedy(table: str, channel: Channel, last: str) -> str:
    """Return what an operator does about a channel that stopped as `Rewound`.

    Args:
        table: key name of its table.
        channel: the channel.
        last: the number of the last batch whose rows the table has, or a letter in its place.
    """
    if channel.name.startswith("-"):  # no name of a transform, a source or an upload: a command takes it for an option
        return _RUN_BOOK
    if channel.region == "flow":
        return f"sterna transforms rebuild {channel.name} --region REGION --yes"
    if channel.tenant == "cdc":
        return f"sterna cdc resync {channel.name} --region {channel.region} --yes"
    if channel.region == "stream" or split_channel(str(channel)) is None:
        return _RUN_BOOK
    # Not ours: names of tables, and what others write into a table's properties.
    places = f"--region {channel.region} --table {shlex.quote(table)} --channel {channel}"
    replay = f"sterna ingest replay {places} --to {shlex.quote(last)} --yes"
    return f"{replay} publishes again what came later; with --accept that stays away"


def _table_lines(table: RestoredTable) -> list[str]:
    place = "from home" if table.files_from == "home" else f"from {table.files_from}'s copies"
    name = table.key if table.key == table.was else f"{table.was} as {table.key}"
    counts = "" if table.rows is None else f", {table.rows} rows in {table.data_files} files"
    since = f", dropped at {table.dropped}" if table.dropped else ""
    if table.replaces:
        since = f", in place of what lives: {table.commits_since} commits since"
    rewinds = [f"    channel {channel} stops as Rewound until you decide" for channel in table.rewinds]
    home = [f"    not from home: {table.not_at_home}"] if table.not_at_home else []
    return [f"  {name} {place}{counts}{since}", *home, *rewinds]
