"""Every error sterna raises, as one tree of classes.

Each class has a `remedy`, which determines a command's exit code. Where the remedy is to stop, the class may declare a
more specific code. docs/errors.md, generated from these classes, shows the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from typing import ClassVar, Final


class ExitCode(IntEnum):
    """What a command ends with, and what that means.

    Args:
        code: the process's exit code.
        meaning: a phrase for `--help` and the documents.
    """

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    SUCCESS = 0, "success"
    UNEXPECTED = 1, "something unexpected, or the demo failed"
    INPUT = 2, "wrong registry, services file, option or name"
    CREDENTIAL = 3, "a credential is missing or refused"
    RETRY_LATER = 4, "something does not answer; a later run resumes"
    HELD = 5, "tables are held, or what came in waits for too long or is bad, or features are late"
    CHANGED = 6, "another writer changed the replica branch, `main` has diverged, or a source lost its log"
    FAULTS = 7, "`verify` found or `repair` left faults, `gc` can't read a file, or a sink's tag is left"
    BLOCKED = 8, "maintenance waits for a region, or for metadata that it can't read"
    INTERRUPTED = 130, "interrupted"


def first_exit_code(codes: Iterable[int]) -> int:
    """Return the exit code of a command that reports several errors or statuses: the first that isn't success."""
    return next(filter(None, codes), ExitCode.SUCCESS)


class Remedy(Enum):
    """What the operator, or Airflow in the operator's place, should do about an error."""

    RETRY = "retry"
    HOLD = "hold"
    STOP = "stop"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of an error with this remedy, unless it stops with a code of its own."""
        return {
            Remedy.RETRY: ExitCode.RETRY_LATER,
            Remedy.HOLD: ExitCode.HELD,
            Remedy.STOP: ExitCode.UNEXPECTED,
        }[self]


class SternaError(Exception):
    """The root of the tree: what failed, on which table and file, and why.

    Args:
        message: what failed and why, without secrets.
        table: the key of the table it happened on, or "".
        file: the URI or path of the file it happened on, or "": unescaped, so that it can be looked up; it is
            escaped where the error is shown.
        hint: what the operator should do beyond the class's remedy, or "".
    """

    remedy: ClassVar[Remedy] = Remedy.STOP
    exit_code: ClassVar[ExitCode] = Remedy.STOP.exit_code
    allows_multiline: ClassVar[bool] = True
    """Whether its messages may have several lines: those are all our own. Foreign text is printed on one line."""

    def __init_subclass__(cls, *, remedy: Remedy | None = None, exit_code: ExitCode | None = None) -> None:
        """Set what a class is declared with; without either it has its parent's.

        Args:
            remedy: what to do about it.
            exit_code: what a command ends with, for an error whose remedy is to stop.

        Raises:
            TypeError: a code is declared for another remedy, whose code it would contradict.
        """
        super().__init_subclass__()
        cls.remedy = remedy or cls.remedy
        if exit_code is not None and cls.remedy is not Remedy.STOP:
            raise TypeError(f"{cls.__name__}: the exit code follows from its remedy, {cls.remedy.value}")
        if remedy or exit_code is not None:
            cls.exit_code = cls.remedy.exit_code if exit_code is None else exit_code

    def __init__(self, message: str, *, table: str = "", file: str = "", hint: str = "") -> None:
        file = redact_uri(file)
        message = printable_lines(message) if self.allows_multiline else printable(message)
        super().__init__(message, table, file, hint)
        self.message = message
        self.table = table
        self.file = file
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders (Spark workers, Airflow): keyword-only arguments need help there.
        return (_rebuild, (type(self), self.message, self.table, self.file, self.hint))

    def __str__(self) -> str:
        details = (("table", self.table), ("file", self.file))
        suffix = "".join(f" [{name} {printable(value)}]" for name, value in details if value)
        return f"{self.message}{suffix}" + (f" ({printable_lines(self.hint)})" if self.hint else "")


MAX_SHOWN_CHARACTERS = 2000
"""Characters of a foreign text that are shown: every commit lists the held keys, and the catalog limits its size."""


def printable(text: str, max_characters: int = MAX_SHOWN_CHARACTERS) -> str:
    r"""Return foreign text as people, logs, commits and JSON may get it: on one line, and encodable.

    Control characters, separators of lines, marks that turn the direction of writing, halves of surrogate pairs, and
    whatever else can't be printed are written as escapes, such as `\x1b`. For display only: a URI is looked up
    unescaped.

    Args:
        text: from outside, such as a table's name.
        max_characters: characters; a longer text is cut in its middle.
    """
    shown = text if text.isprintable() else "".join(map(_escape_character, text))
    half = max_characters // 2 - 20
    return shown if len(shown) <= max_characters else f"{shown[:half]}…{len(shown) - 2 * half} more…{shown[-half:]}"


def list_some(texts: Sequence[str], most: int = 20, separator: str = ", ") -> str:
    """Return texts on one line: the first ones, and how many more there are."""
    more = f"{separator.rstrip(', ')} and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


def printable_lines(text: str) -> str:
    """Return text of our own, which may have lines, with the foreign text in it made printable."""
    return "\n".join(printable(line, 6 * len(line) + MAX_SHOWN_CHARACTERS) for line in text.split("\n"))


def _escape_character(character: str) -> str:
    # Python's rule: no controls, no formats, no separator but the space, no half of a pair, nothing unassigned.
    if character.isprintable():
        return character
    code_point = ord(character)
    return (
        f"\\x{code_point:02x}"
        if code_point < 0x100
        else f"\\u{code_point:04x}"
        if code_point < 0x10000
        else f"\\U{code_point:08x}"
    )


_USER_INFO = re.compile(r"(?<=://)[^/@]*@")


def redact_uri(uri: str) -> str:
    """Return a URI for display: without a query, which may have a signature, and without user-info.

    Azure's `container@account` is no user-info: it stays.
    """
    shown = uri.partition("?")[0]
    return shown if shown.startswith(("abfs", "wasb")) else _USER_INFO.sub("", shown)


def _rebuild(error_class: type[SternaError], message: str, table: str, file: str, hint: str) -> SternaError:
    return error_class(message, table=table, file=file, hint=hint)


class RegistryError(SternaError, exit_code=ExitCode.INPUT):
    """The registry file is missing or wrong, or contradicts what the catalog has recorded."""


class ServicesError(SternaError, exit_code=ExitCode.INPUT):
    """The services file is wrong, or it was named and is missing."""


class UsageError(SternaError, exit_code=ExitCode.INPUT):
    """A region, table or run was named that does not exist."""


class CredentialError(SternaError, exit_code=ExitCode.CREDENTIAL):
    """A credential is missing or incomplete; the message names its id and where it was looked for."""


class CatalogError(SternaError):
    """A request to Nessie failed."""

    allows_multiline = False


class CatalogUnreachable(CatalogError, remedy=Remedy.RETRY):
    """Nessie gave no usable answer in time; nothing is known to have changed."""


class CatalogConflict(CatalogError, remedy=Remedy.RETRY):
    """Another commit moved the reference first; nothing of ours was committed."""


class CatalogStateUnknown(CatalogError, remedy=Remedy.RETRY):
    """The answer to a commit was lost: it may or may not have happened."""


class NotPrimary(CatalogError, remedy=Remedy.RETRY):
    """This region's catalog is a copy, or was fenced: it takes no commits; nothing was changed."""


class DatabaseUnreachable(CatalogError, remedy=Remedy.RETRY):
    """The Postgres behind a region's catalog, or its ingest tracker, gave no answer in time."""


class DatabaseRefused(CatalogError):
    """The Postgres behind a region's catalog, or its ingest tracker, refused a statement."""


class CatalogDenied(CatalogError, exit_code=ExitCode.CREDENTIAL):
    """Nessie refused our credential, or the role lacks a right."""


class ReferenceNotFound(CatalogError, exit_code=ExitCode.INPUT):
    """No such branch, tag or commit."""


class CatalogRefused(CatalogError):
    """Nessie refused the request: it, or the server's state, is wrong."""


class BranchChanged(CatalogError, exit_code=ExitCode.CHANGED):
    """A replica branch carries a commit that sterna did not make."""


class Diverged(CatalogError, exit_code=ExitCode.CHANGED):
    """The watermark is no ancestor of main's head: main was reassigned, reset or rewritten."""


class StoreError(SternaError):
    """A request to an object store failed."""

    allows_multiline = False


class StoreUnreachable(StoreError, remedy=Remedy.RETRY):
    """An endpoint does not answer in time, or throttles."""


class StoreDenied(StoreError, exit_code=ExitCode.CREDENTIAL):
    """An endpoint refuses our credential."""


OUTAGES: Final = (StoreUnreachable, StoreDenied, CredentialError)
"""What keeps a store from being used at all: it says nothing of a file, and ends once the store is available again."""


class ClockSkew(StoreError):
    """This machine's clock and a store's differ by more than signatures, leases and ages allow."""


class ObjectMissing(StoreError, remedy=Remedy.RETRY):
    """An object that must be there is not."""


class EngineError(SternaError, remedy=Remedy.RETRY):
    """rclone or Spark is missing, too old, or failed altogether."""


class EngineRefused(EngineError, remedy=Remedy.STOP, exit_code=ExitCode.HELD):
    """Spark doesn't read or write a table as it is, and no later run will: the table or Spark has to change."""


class NoIceberg(EngineError, remedy=Remedy.STOP):
    """Spark's driver lacks Iceberg's runtime, and no later run will have it."""


class Busy(SternaError, remedy=Remedy.RETRY):
    """Others are at work, such as a sync or a clean-up in the region, and this has to wait until they are done."""


class QueryError(SternaError):
    """A named query has no answer."""

    allows_multiline = False


class BadRequest(QueryError, exit_code=ExitCode.INPUT):
    """A request doesn't have what the query takes."""


class UnfitParameters(BadRequest):
    """The query can't be answered for the values of its parameters, whatever the rows are; or a figure has no row."""


class NoSuchQuery(QueryError, exit_code=ExitCode.INPUT):
    """There is no such query, or no such table here."""


class NotAllowed(QueryError, exit_code=ExitCode.CREDENTIAL):
    """A rule keeps the table from the client."""


class SnapshotGone(QueryError):
    """The requested snapshot is here no longer, or never was."""


class NotYetHere(QueryError, remedy=Remedy.RETRY):
    """`main` has the requested snapshot, and this region not yet."""


class StaysBehind(QueryError, exit_code=ExitCode.HELD):
    """A table was held or in transit at the commit of `main` that was asked for: its state here is an older one."""


class AnswerTooLarge(QueryError):
    """The answer has more rows or bytes than it may have."""


class QueueFull(QueryError, remedy=Remedy.RETRY):
    """Too many queries wait already."""


class OutOfTime(QueryError):
    """The query ran for longer than it may."""


class QueryEnded(QueryError, remedy=Remedy.RETRY):
    """The process that answers queries is ending, and the run with it."""


class NeedsSpark(QueryError):
    """A table that the gateway's own engine doesn't read exactly."""


class QueryFailed(QueryError):
    """The engine refused the query, or the process that ran it died."""


class ChangesError(SternaError):
    """The rows between two snapshots can't be determined."""

    allows_multiline = False


class Gap(ChangesError, exit_code=ExitCode.CHANGED):
    """A snapshot, or the way between two, is not kept."""


class NotAnAncestor(ChangesError, exit_code=ExitCode.CHANGED):
    """The snapshot to start from is no ancestor of the one to end at."""


class NotAKey(ChangesError, exit_code=ExitCode.INPUT):
    """Several rows of a snapshot have the same key."""


class NeedsClassicSpark(ChangesError, exit_code=ExitCode.INPUT):
    """Spark Connect doesn't show the JVM that plans changes and commits to `main`."""


class NoSuchMoment(SternaError, exit_code=ExitCode.INPUT):
    """A text names no moment of `main`: no such commit, no time, a time without a zone, or outside its history."""


class RestoreError(SternaError):
    """A table, view or namespace can't be restored as requested; nothing was committed."""


class NothingToRestore(RestoreError, exit_code=ExitCode.INPUT):
    """What was named wasn't on `main` then, or can't be put where it is to go."""


class TableLives(RestoreError, exit_code=ExitCode.INPUT):
    """A table lives under the name that a restored one would get."""


class FilesGone(RestoreError, exit_code=ExitCode.FAULTS):
    """No region has all files of a table that was to be restored."""


class OutletError(SternaError):
    """An event can't be sent on."""

    allows_multiline = False


class ReceiverUnreachable(OutletError, remedy=Remedy.RETRY):
    """A receiver or broker doesn't acknowledge an event."""


class EventRefused(OutletError):
    """A receiver or broker will never take this event."""


class OutletDisabled(OutletError):
    """A receiver rejects further events."""


class WapError(SternaError):
    """A batch or a step can't be put on `main`."""

    allows_multiline = False


class TableMoved(WapError, remedy=Remedy.RETRY):
    """Others changed the table between each read and the commit after it; nothing of ours was committed."""


class OutOfTurn(WapError, remedy=Remedy.RETRY):
    """An earlier number of the same channel isn't on `main` yet."""


class MarkMoved(WapError):
    """The channel's applied position isn't what the step was made for: it has to be made again."""


class Rewound(WapError, exit_code=ExitCode.CHANGED):
    """By the channel's applied position rows are on `main`; by the table's history they no longer are."""


class NotStaged(WapError):
    """What is written would be live at once, or was: nothing may be put on `main` without an id."""


class BatchRejected(WapError, exit_code=ExitCode.HELD):
    """The audit of staged rows failed: they stay staged, and readers never see them."""


class TableGone(WapError):
    """There is no such table on `main`, or there is no longer."""


class FlowError(SternaError):
    """A table can't follow another one."""

    allows_multiline = False


class FlowStopped(FlowError, exit_code=ExitCode.CHANGED):
    """How far a transform has come isn't certain: its target has rows and no position, or a rebuild isn't done."""


class NotOnlyAdded(FlowError, exit_code=ExitCode.CHANGED):
    """The source deleted or updated rows, and the transform only appends what is new."""


class StepUnfinished(FlowError, remedy=Remedy.RETRY):
    """A transform's step began and has not come to an end: its process was killed, or can't be reached."""


class FeaturesError(SternaError):
    """Features can't be kept, read or joined to labels."""

    allows_multiline = False


class FeatureStoreUnreachable(FeaturesError, remedy=Remedy.RETRY):
    """The store of features gives no answer in time, is loading, or is a copy that takes no writes."""


class FeatureStoreRefused(FeaturesError):
    """The store of features refused a command."""


class FeatureStoreFull(FeaturesError):
    """The store of features has no memory left for what is written."""


class FeaturesMoved(FeaturesError, remedy=Remedy.RETRY):
    """Another run fills the view by now: what this one would write could be older."""


class UnfitView(FeaturesError, exit_code=ExitCode.INPUT):
    """A view's table hasn't got the columns that the view names, or not in types that can be kept."""


class LabelTooOld(FeaturesError):
    """A label is older than the history that the table keeps: its features can't be determined."""


class IngestError(SternaError):
    """An upload can't be accepted or processed."""

    allows_multiline = False


class BadDrop(IngestError):
    """An upload can't be read as its format: it is cut, broken or of another kind."""


class DropOverLimit(IngestError):
    """An upload is larger, longer or deeper than the tenant's limits allow; the message names the setting."""


class KeyReused(IngestError):
    """An idempotency key is already in use for other content."""


class LeaseLost(IngestError, remedy=Remedy.RETRY):
    """A worker's batch was given to another worker, or is settled: this one stops, and takes the next."""


class TrackerContradicts(IngestError, exit_code=ExitCode.FAULTS):
    """The tracker has an impossible state of a batch: published where it is to be rejected, or the reverse."""


class TrackerLost(IngestError, exit_code=ExitCode.FAULTS):
    """The inbox is in use, and the tracker isn't its own: it was lost, or another database is named."""


class TrackerTooNew(IngestError, exit_code=ExitCode.INPUT):
    """A newer sterna has made the tracker's tables: this one would not understand them."""


class TopicUnreachable(IngestError, remedy=Remedy.RETRY):
    """A Kafka that messages are read from doesn't answer, or doesn't authorize reading."""


class TopicRecreated(IngestError, exit_code=ExitCode.HELD):
    """A topic is not the one that its position was kept for: it was deleted and made again, and offsets restart."""


class TopicModeChanged(IngestError, exit_code=ExitCode.HELD):
    """A topic's `mode` isn't the one in which it was read before: two readers would take its messages twice."""


class MessagesGone(IngestError, exit_code=ExitCode.HELD):
    """Messages that were not read yet are no longer in their topic, or it ends before what was read of it."""


class CdcError(SternaError):
    """A database's changes can't be followed."""

    allows_multiline = False


class SourceUnreachable(CdcError, remedy=Remedy.RETRY):
    """The engine that reads a database's changes ended, or doesn't get an answer."""


class UnfitSource(CdcError, exit_code=ExitCode.INPUT):
    """The database isn't set up for being followed, or has a table or a value that can't be."""


class SlotLost(CdcError, exit_code=ExitCode.CHANGED):
    """The database has forgotten changes that were not read yet: its slot is gone, or was invalidated."""


class PositionLost(CdcError, exit_code=ExitCode.CHANGED):
    """A database's log lacks the place up to which it was read: purged, restarted, or another server's."""


class PurgeNear(CdcError, exit_code=ExitCode.HELD):
    """A database is about to purge log that was not read yet."""


class LogKept(CdcError, exit_code=ExitCode.HELD):
    """A database keeps more log for its reader than it may before that is an alarm."""


class NotRead(CdcError, exit_code=ExitCode.HELD):
    """A database has not been read for longer than `read_alarm` allows."""


class NeedsResync(CdcError, exit_code=ExitCode.CHANGED):
    """A change of a table can't be expressed by changes of rows: it has to be read again from its database."""


class RestCatalogError(SternaError):
    """A request to a region's Iceberg REST address can't be fulfilled.

    `status` and `wire_type` are the HTTP status and the `type` of the specification's ErrorModel: clients decide by
    them whether to retry, and whether to delete the files that they wrote.
    """

    allows_multiline = False
    status: ClassVar[int] = 400
    wire_type: ClassVar[str] = "BadRequestException"


class BadUpdate(RestCatalogError, exit_code=ExitCode.INPUT):
    """A request, update or requirement is malformed, unknown, or doesn't fit the table's metadata."""


class HomeUnavailable(RestCatalogError, remedy=Remedy.RETRY):
    """The store of a table's home can't be used, and a commit needs a file that is there alone."""

    # Clients of Iceberg 1.12 take a 503 for a commit whose outcome is unknown, earlier ones delete files after it.
    status = 429
    wire_type = "HomeUnavailableException"


class TableUnusable(RestCatalogError, remedy=Remedy.HOLD):
    """A commit needs what is damaged, gone or not supported, and no later try helps before that is mended."""

    # Definite for all clients: none deletes files after it, and none takes it for an unknown outcome.
    status = 422
    wire_type = "TableUnusableException"


class ForeignFile(RestCatalogError, exit_code=ExitCode.INPUT):
    """A commit names a file that is neither the table's on `main` nor new in the table's place of this region."""


class Forbidden(RestCatalogError, exit_code=ExitCode.CREDENTIAL):
    """A rule, a policy or the client's role keeps the request from being fulfilled."""

    status = 403
    wire_type = "ForbiddenException"


class NoSuchTable(RestCatalogError, exit_code=ExitCode.INPUT):
    """There is no such table at this address."""

    status = 404
    wire_type = "NoSuchTableException"


class NoSuchView(RestCatalogError, exit_code=ExitCode.INPUT):
    """There is no such view at this address."""

    status = 404
    wire_type = "NoSuchViewException"


class NoSuchNamespace(RestCatalogError, exit_code=ExitCode.INPUT):
    """There is no such namespace at this address."""

    status = 404
    wire_type = "NoSuchNamespaceException"


class NoSuchVersion(RestCatalogError, exit_code=ExitCode.INPUT):
    """A region has no commit of its replica for a commit or time of `main`, or no longer all of its files."""

    status = 404
    wire_type = "NoSuchWarehouseException"


class AlreadyExists(RestCatalogError, exit_code=ExitCode.INPUT):
    """A table, view or namespace has the name already."""

    status = 409
    wire_type = "AlreadyExistsException"


class NamespaceNotEmpty(RestCatalogError, exit_code=ExitCode.INPUT):
    """A namespace that is to be dropped has tables, views or namespaces."""

    status = 409
    wire_type = "NamespaceNotEmptyException"


class RequirementFailed(RestCatalogError, remedy=Remedy.RETRY):
    """The table isn't what the client's commit was made for; nothing was committed."""

    status = 409
    wire_type = "CommitFailedException"


class StaleBase(RestCatalogError, remedy=Remedy.RETRY):
    """A commit was made for a version of the table that `main` has left behind; nothing was committed."""

    status = 409
    wire_type = "CommitFailedException"


class CommitOutcomeUnknown(RestCatalogError, remedy=Remedy.RETRY):
    """A commit to `main` was sent, and no answer says whether it happened: the client must delete nothing."""

    status = 500
    wire_type = "CommitStateUnknownException"


class ReplicaBroken(SternaError, exit_code=ExitCode.FAULTS):
    """A file that a kept head of the replica needs can't be read.

    What it names is unknown, so nothing may be deleted.
    """


class UpkeepBlocked(SternaError, exit_code=ExitCode.BLOCKED):
    """What maintenance may remove isn't known, or a region has to be waited for: nothing is expired or deleted."""


class TableError(SternaError, remedy=Remedy.HOLD):
    """One table can't be localized now: it is held at its last good version."""

    allows_multiline = False


class UnregisteredUri(TableError):
    """A URI is outside every prefix of the registry."""


class UnsafeUri(TableError):
    """A URI that must not be followed: traversal, user-info, a query, or a key the copy can't carry."""


class NotResident(TableError):
    """A file that a residency rule keeps out of this region: nothing of it is read, copied or named."""


class Unsupported(TableError):
    """A feature that this version of sterna does not localize."""


class BrokenMetadata(TableError):
    """A metadata file that does not parse, or contradicts itself."""


class OverLimit(TableError):
    """A metadata file that is larger, or holds more, than the region's limits allow; the message names the setting."""


class PlanKilled(TableError):
    """Reading the table's metadata ended two plans before: it is not read again until requested by name."""


class Paused(TableError):
    """An operator has paused the table's replication in this region: it stays as it is until resumed."""


class SourceGone(TableError):
    """A listed file is gone at its source."""


class NotCopied(TableError):
    """A listed file is at its source and yet does not arrive, while others do."""


class SizeDiffers(TableError):
    """An object's real size differs from the size in its metadata."""


class NotLocalized(TableError):
    """A localized file that was about to be published is gone, or has another length than its parent records."""


class Damaged(TableError):
    """A file of the replica that its head reaches is not what sterna wrote: `repair` alone writes over it."""


def remedy_of(class_name: str) -> Remedy:
    """Return the remedy of an error by the name of its class; HOLD where this version has no such error."""
    error_class = globals().get(class_name)
    return error_class.remedy if isinstance(error_class, type) and issubclass(error_class, SternaError) else Remedy.HOLD
