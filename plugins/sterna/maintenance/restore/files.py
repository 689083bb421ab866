"""Where the files of a past version of `main` lie: at home, or as a region's copies; each is looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from sterna.catalog.ancestry import Ancestry
from sterna.catalog.model import Commit, Content, Key, key_name
from sterna.config.registry.model import SOURCE_BRANCH, Region
from sterna.errors import (
    OUTAGES,
    ReferenceNotFound,
    SternaError,
    TableError,
    printable,
    redact_uri,
)
from sterna.maintenance.restore.model import Selected
from sterna.replication.replica.desired_state import desired_content
from sterna.replication.replica.head import RUN_ID, SOURCE_HASH, load_held_list, parse_head
from sterna.replication.replica.held import Held
from sterna.replication.replica.point_in_time import PastMain, lost_before
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.findings import (
    CHECKSUM,
    FOREIGN,
    MISSING,
    SIZE,
    STRAY,
    UNPROTECTED,
    UNREADABLE,
    UNSORTED,
    Findings,
)
from sterna.replication.verify.locations import Places
from sterna.replication.verify.source_faults import SourcePlaces
from sterna.replication.verify.table import TableReach, check_source, check_structure

_URI = re.compile(r"\S+://\S+")
_FILE_FAULTS = frozenset({MISSING, SIZE, UNREADABLE})
# What a table's writer got wrong is on `main`, too: its files are there all the same.
_REPLICA_FAULTS = _FILE_FAULTS | {FOREIGN, UNPROTECTED, UNSORTED, STRAY}


@dataclass(frozen=True)
class PlaceFault:
    """What is wrong with the files of a version at one place.

    Args:
        message: the first fault, with its file.
        is_checksum: nothing but checksums of deletion vectors: its writer may have got them wrong.
    """

    message: str
    is_checksum: bool = False


@dataclass(frozen=True)
class ReplicaVersion:
    """A version of `main` as a region's replica branch has or had it.

    Args:
        content: what the branch held.
        commit: a commit of the branch that has it.
    """

    content: Content
    commit: str


@dataclass
class ReplicaVersions:
    """What a region's replica has of some versions of `main`.

    Args:
        context: that region.
        versions: by key.
        absent: by key, why it has none.
    """

    context: RegionContext
    versions: dict[Key, ReplicaVersion] = field(default_factory=dict)
    absent: dict[Key, str] = field(default_factory=dict)


def home_fault(context: RegionContext, name: str, content: Content) -> PlaceFault | None:
    """Return which file of a version isn't where `main` named it, or why that can't be looked up; None for none.

    Args:
        context: a region.
        name: key name of the table or view.
        content: what `main` has of it.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used: what it has is unknown.
    """
    findings = Findings(name)
    try:
        check_source(context, SourcePlaces(context.mapping), content, findings, sizes=True)
    except OUTAGES:
        raise
    except SternaError as error:
        return PlaceFault(str(error))
    return _first_fault(findings, _FILE_FAULTS)


def replica_fault(context: RegionContext, name: str, content: Content) -> PlaceFault | None:
    """Return which file of a version isn't in a region, or why that can't be looked up; None for none.

    Args:
        context: that region.
        name: key name of the table or view.
        content: its version there.
    """
    findings = Findings(name)
    try:
        context.mapping.require_resident(content.metadata_location or "")
        reached = check_structure(context, Places(context.mapping), content, None, findings)
        _require_resident(context, reached)
    except SternaError as error:
        return PlaceFault(str(error))
    return _first_fault(findings, _REPLICA_FAULTS)


def _require_resident(context: RegionContext, reached: TableReach) -> None:
    """See that a region may have all files that a version reaches there: a copy counts as its original.

    Raises:
        NotResident: a residency rule keeps one out of it.
    """
    if not context.mapping.excluded_places:
        return
    deletes = (uri for uri, _ in reached.deletes)
    for uri in chain(reached.lists, reached.manifests, deletes, reached.content):
        context.mapping.require_resident(uri)


def find_replica_versions(
    context: RegionContext, region: Region, past: PastMain, tables: Iterable[Selected]
) -> ReplicaVersions:
    """Return what a region's replica branch has of some versions of `main`, exactly; no store is read.

    The branch is read back to its first commit that is of the past commit, or of one before it. What it held there, or
    got since, of the very metadata.json that `main` had is that version. A commit that is of one that `main` has lost
    ends nothing: what came before it may have the version.

    Args:
        context: the region that the restore is run for.
        region: whose replica.
        past: the commit of `main`.
        tables: the versions.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    replica_versions = ReplicaVersions(context.of_region(region))
    unseen: dict[Key, Selected] = {}
    for selected in tables:
        if reason := context.registry.exclusion_reason(key_name(selected.source), region.name):
            replica_versions.absent[selected.source] = f"it may not be there: {reason}"
        else:
            unseen[selected.source] = selected
    gap = _search_branch(replica_versions, past, unseen) if unseen else ""
    for key in unseen:
        replica_versions.absent.setdefault(key, gap or f"{region.replica_branch} never had that version")
    return replica_versions


def localized_uris(context: RegionContext, name: str, content: Content) -> dict[str, str]:
    """Return where each region has its metadata.json of a version of `main`, by the region's name; no store is read.

    Args:
        name: key name of the table or view.
        content: what `main` has, or had, of it.
    """
    uris = {}
    for region in context.registry.regions:
        with suppress(SternaError):  # it has none
            uris[region.name] = desired_content(context.of_region(region), name, content, None).metadata_location or ""
    return uris


def _search_branch(replica_versions: ReplicaVersions, past: PastMain, unseen: dict[Key, Selected]) -> str:
    """Take from a replica branch's history the versions that it has, out of `unseen`.

    Returns:
        Where the history ends too early, because the catalog has lost commits; "" where it doesn't.
    """
    context = replica_versions.context
    branch, oldest = context.region.replica_branch, None
    ancestry = Ancestry(context.primary, past.commit.hash, SOURCE_BRANCH)
    try:
        for commit in context.primary.history(branch, operations=True):
            if not unseen:
                return ""
            oldest = commit
            source_hash = commit.properties.get(SOURCE_HASH)
            is_own = source_hash and source_hash not in past.newer and RUN_ID in commit.properties
            if is_own and _is_seen(ancestry, source_hash or ""):
                _take_all(replica_versions, commit, unseen)
                return ""
            _take(replica_versions, commit.hash, ((put.key, put.content) for put in commit.puts), unseen)
    except ReferenceNotFound:
        if oldest is None:  # a region without a replica branch
            return ""
        return f"{lost_before(branch, oldest)}: whether that version was there isn't known"
    return ""


def _is_seen(ancestry: Ancestry, hash: str) -> bool:
    """Return whether a commit is seen in a history; one before commits that the catalog has lost isn't."""
    with suppress(ReferenceNotFound):
        return ancestry.contains(hash)
    return False


def _take_all(replica_versions: ReplicaVersions, commit: Commit, unseen: dict[Key, Selected]) -> None:
    """Take what a branch held at a commit, and say why it hadn't the rest."""
    context = replica_versions.context
    contents = context.primary.contents(context.region.replica_branch, commit.hash, list(unseen))
    _take(replica_versions, commit.hash, contents.items(), unseen)
    held = _held_at(context, commit) if unseen else {}
    for key in unseen:
        if entry := held.get(key_name(key)):
            replica_versions.absent[key] = f"it was {entry.state} there: {entry.kind}: {entry.reason}"


def _held_at(context: RegionContext, commit: Commit) -> Mapping[str, Held]:
    """Return the keys that were held or in transit at a commit, for people; none where that can't be read."""
    try:
        return load_held_list(context.objects, parse_head(commit)).held_by_key
    except SternaError:
        return {}


def _take(
    replica_versions: ReplicaVersions, commit: str, contents: Iterable[tuple[Key, Content]], unseen: dict[Key, Selected]
) -> None:
    for key, content in contents:
        selected = unseen.get(key)
        if selected is not None and _is_version_of(replica_versions.context, content, selected.content):
            replica_versions.versions[key] = ReplicaVersion(content, commit)
            del unseen[key]


def _is_version_of(context: RegionContext, replica: Content, main: Content) -> bool:
    """Return whether a replica's content was made from one of `main`."""
    source, target = main.metadata_location or "", replica.metadata_location or ""
    if replica.with_id(None).with_metadata_location(source) != main.with_id(None):
        return False
    try:
        return source == target or context.mapping.metadata_origin(target) == context.mapping.origin_uri(source)
    except TableError:
        return False


def _first_fault(findings: Findings, kinds: frozenset[str]) -> PlaceFault | None:
    faults = [finding for finding in findings.kept if finding.kind in kinds]
    checksums = [finding for finding in findings.kept if finding.kind == CHECKSUM]
    fault = next(iter(faults + checksums), None)
    if fault is None:
        return None
    message = _URI.sub(lambda match: redact_uri(match[0]), fault.message)
    return PlaceFault(printable(f"{fault.kind} {redact_uri(fault.file)}: {message}"), is_checksum=not faults)
