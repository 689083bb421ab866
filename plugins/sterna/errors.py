"""Every error sterna raises, as one tree.

    SternaError
    ├── RegistryError            the registry file is missing, wrong or contradicts the catalog     stop
    ├── ServicesError            the services file is wrong, or missing where it was named           stop
    ├── CredentialError          a credential is missing or incomplete                              stop
    ├── UsageError               the caller named something that does not exist                     stop
    ├── CatalogError
    │   ├── CatalogUnreachable   no answer, or a 5xx that says "later"                              retry
    │   ├── CatalogConflict      another commit moved the reference first                           retry
    │   ├── CatalogStateUnknown  the answer to a commit was lost: it may have happened              retry
    │   ├── NotPrimary           the catalog is a copy, or was fenced: it takes no commits          retry
    │   ├── DatabaseUnreachable  no answer from the Postgres behind a region's catalog              retry
    │   ├── DatabaseRefused      that Postgres said no                                              stop
    │   ├── CatalogDenied        401 or 403                                                         stop
    │   ├── ReferenceNotFound    no such branch, tag or hash                                        stop
    │   ├── CatalogRefused       the server understood and said no                                  stop
    │   ├── BranchChanged        somebody else committed to a replica branch                        stop
    │   └── Diverged             the watermark is no ancestor of main's head                        stop
    ├── StoreError
    │   ├── StoreUnreachable     an endpoint does not answer, or throttles                          retry
    │   ├── StoreDenied          the endpoint refuses our credential                                stop
    │   └── ObjectMissing        an object that must be there is not                                retry
    ├── EngineError              rclone or Spark is missing, too old or failed as a whole           retry
    │   ├── EngineRefused        Spark doesn't take a table as it is, and won't at a later run       stop
    │   └── NoIceberg            Spark's driver hasn't got Iceberg's runtime                        stop
    ├── Busy                     a sync or a clean-up is at work, and the other has to wait for it  retry
    ├── QueryError               a named query has no answer
    │   ├── BadRequest           what was asked isn't what the query takes                           stop
    │   ├── NoSuchQuery          no such query, or no such table here                                stop
    │   ├── NotAllowed           a rule keeps the table from whoever asks                            stop
    │   ├── SnapshotGone         the snapshot is here no longer                                      stop
    │   ├── NotYetHere           `main` has the snapshot, and this region not yet                    retry
    │   ├── AnswerTooLarge       more rows or bytes than an answer may have                          stop
    │   ├── QueueFull            too many queries wait already                                       retry
    │   ├── OutOfTime            the query runs for too long                                         stop
    │   ├── QueryEnded           the process that answers is ending                                  retry
    │   ├── NeedsSpark           a table that the gateway's own engine doesn't read exactly          stop
    │   └── QueryFailed          the engine says no, or its process died                             stop
    ├── ChangesError
    │   ├── Gap                  a snapshot, or the way between two, is not kept                     stop
    │   ├── NotAnAncestor        the snapshot to start from is no ancestor of the one to end at      stop
    │   ├── NotAKey              several rows of a snapshot have the same key                        stop
    │   └── NeedsClassicSpark    Spark Connect doesn't show the JVM that changes are planned in      stop
    ├── OutletError
    │   ├── ReceiverUnreachable  a receiver or broker doesn't acknowledge an event                   retry
    │   ├── EventRefused         it says that it never takes this event                              stop
    │   └── OutletDisabled       it says that it wants no events any more                            stop
    ├── WapError                 a batch or a step can't be put on `main`
    │   ├── TableMoved           others changed the table each time before the commit                retry
    │   ├── OutOfTurn            an earlier number of the channel isn't on `main` yet                retry
    │   ├── MarkMoved            the mark isn't what the step was made for                           stop
    │   ├── Rewound              the mark says that it is on `main`, and its history says no         stop
    │   ├── NotStaged            rows would be, or were, live at once                                stop
    │   ├── BatchRejected        the audit says no: it stays staged, and readers never see it        stop
    │   └── TableGone            there is no such table on `main`, or no longer                      stop
    ├── FlowError                a table can't follow another one
    │   ├── FlowStopped          how far it has come isn't certain                                   stop
    │   ├── NotOnlyAdded         the source took rows away, and the flow only appends                stop
    │   └── StepUnfinished       a step began, and gave no sign of life since                        retry
    ├── IngestError
    │   ├── BadDrop              what was sent can't be read as what it says it is                   stop
    │   ├── DropOverLimit        it is larger, longer or deeper than the tenant's limits allow       stop
    │   ├── KeyReused            an idempotency key that stands for other content already            stop
    │   ├── LeaseLost            a worker's batch was given to somebody else                         retry
    │   ├── TrackerContradicts   the tracker says of a batch what can't be true                      stop
    │   ├── TrackerLost          the inbox is in use, and the tracker isn't its own                  stop
    │   └── TrackerTooNew        a newer sterna has made the tracker's tables                        stop
    ├── CdcError                 a database's changes can't be followed
    │   ├── SourceUnreachable    the engine that reads them ended, or doesn't answer                 retry
    │   ├── UnfitSource          the database, a table or a value can't be followed as it is          stop
    │   ├── LogKept              the database keeps more log for its reader than is healthy              stop
    │   ├── PurgeNear            the database is about to purge log that was not read                stop
    │   ├── SlotLost             the database has forgotten changes that were not read yet           stop
    │   ├── PositionLost         the database's log isn't the one that was read, or has lost a part  stop
    │   └── NeedsResync          what was changed there can't be told by changes of rows             stop
    ├── FeaturesError
    │   ├── FeatureStoreUnreachable  the store of features doesn't answer, or isn't the primary      retry
    │   ├── FeatureStoreRefused  it understood and said no                                           stop
    │   ├── FeatureStoreFull     it has no memory left                                               stop
    │   ├── FeaturesMoved        another run fills the view: this one has to stop                    retry
    │   ├── UnfitView            a view's table hasn't got its columns, or not in such types         stop
    │   └── LabelTooOld          a label is older than the history that the table keeps              stop
    ├── ReplicaBroken            a file that a kept head of the replica needs can't be read         stop
    ├── UpkeepBlocked            something is needed still, or nobody knows: nothing is expired or deleted   stop
    └── TableError               one table can't be localized now: it is held, the others go on     hold
        ├── UnregisteredUri      a URI outside the registry
        ├── UnsafeUri            a URI that must not be followed
        ├── NotResident          a file that a residency rule keeps out of this region
        ├── Unsupported          a feature that this version does not localize
        ├── BrokenMetadata       a metadata file that does not parse, or contradicts itself
        ├── OverLimit            a metadata file that is larger, or holds more, than the region's limits allow
        ├── PlanKilled           reading its metadata ended two plans before, for memory most likely
        ├── SourceGone           a listed file is gone at its source
        ├── NotCopied            a listed file is at its source and yet does not arrive
        ├── SizeDiffers          an object's real size is not the one that its metadata says
        ├── NotLocalized         a localized file is gone, or has another length than what names it says
        └── Damaged              a file of the replica that its head reaches is not what sterna wrote

What to do stands on each class as `remedy`; the command line turns `exit_code` into its own.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import ClassVar


class Remedy(Enum):
    """What the operator, or Airflow for him, should do about an error."""

    RETRY = "retry"
    HOLD = "hold"
    STOP = "stop"


class SternaError(Exception):
    """The root of the tree: what failed, on which table and file, and why.

    Args:
        message: what failed and why, without secrets.
        table: the key of the table it happened on, or "".
        file: the URI or path of the file it happened on, or "": as it stands, for whoever looks it up; it is escaped
            where the error is shown.
        hint: what the operator should do beyond the class's remedy, or "".
    """

    remedy: ClassVar[Remedy] = Remedy.STOP
    exit_code: ClassVar[int] = 1
    allows_multiline: ClassVar[bool] = True
    """Whether its messages may have several lines: those are all our own. Foreign text is told on one line."""

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
"""Characters of a foreign text that are shown: held keys stand in every commit, whose size the catalog limits."""


def printable(text: str, max_characters: int = MAX_SHOWN_CHARACTERS) -> str:
    r"""Return foreign text as people, logs, commits and JSON may get it: on one line, and encodable.

    Control characters, separators of lines, marks that turn the direction of writing, halves of surrogate pairs, and
    whatever else can't be printed are written as escapes, such as `\x1b`. For showing only: a URI is looked up as it
    stands.

    Args:
        text: whatever somebody wrote.
        max_characters: characters; a longer text is cut in its middle.
    """
    shown = text if text.isprintable() else "".join(map(_escape_character, text))
    half = max_characters // 2 - 20
    return shown if len(shown) <= max_characters else f"{shown[:half]}…{len(shown) - 2 * half} more…{shown[-half:]}"


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
    """Return a URI for people to read: without a query, where signatures stand, and without user-info.

    Azure's `container@account` is no user-info: it stays.
    """
    shown = uri.partition("?")[0]
    return shown if shown.startswith(("abfs", "wasb")) else _USER_INFO.sub("", shown)


def _rebuild(error_class: type[SternaError], message: str, table: str, file: str, hint: str) -> SternaError:
    return error_class(message, table=table, file=file, hint=hint)


class RegistryError(SternaError):
    """The registry file is missing, wrong, or contradicts what the catalog remembers."""

    exit_code = 2


class ServicesError(SternaError):
    """The services file is wrong, or it was named and is missing."""

    exit_code = 2


class UsageError(SternaError):
    """The caller named a region, table or run that does not exist."""

    exit_code = 2


class CredentialError(SternaError):
    """A credential is missing or incomplete; the message names its id and where it was looked for."""

    exit_code = 3


class CatalogError(SternaError):
    """Anything that went wrong at Nessie."""

    allows_multiline = False


class CatalogUnreachable(CatalogError):
    """Nessie gave no usable answer in time; nothing is known to have changed."""

    remedy = Remedy.RETRY
    exit_code = 4


class CatalogConflict(CatalogError):
    """Another commit moved the reference first; nothing of ours was committed."""

    remedy = Remedy.RETRY
    exit_code = 4


class CatalogStateUnknown(CatalogError):
    """The answer to a commit was lost: it may or may not have happened."""

    remedy = Remedy.RETRY
    exit_code = 4


class NotPrimary(CatalogError):
    """This region's catalog is a copy, or was fenced: it takes no commits; nothing was changed."""

    remedy = Remedy.RETRY
    exit_code = 4


class DatabaseUnreachable(CatalogError):
    """The Postgres behind a region's catalog, or its ingest tracker, gave no answer in time."""

    remedy = Remedy.RETRY
    exit_code = 4


class DatabaseRefused(CatalogError):
    """The Postgres behind a region's catalog, or its ingest tracker, understood and said no."""


class CatalogDenied(CatalogError):
    """Nessie refused our credential, or the role lacks a right."""

    exit_code = 3


class ReferenceNotFound(CatalogError):
    """No such branch, tag or commit."""

    exit_code = 2


class CatalogRefused(CatalogError):
    """Nessie understood the request and said no: our request, or the server's state, is wrong."""


class BranchChanged(CatalogError):
    """A replica branch carries a commit that sterna did not make."""

    exit_code = 6


class Diverged(CatalogError):
    """The watermark is no ancestor of main's head: main was reassigned, reset or rewritten."""

    exit_code = 6


class StoreError(SternaError):
    """Anything that went wrong at an object store."""

    allows_multiline = False


class StoreUnreachable(StoreError):
    """An endpoint does not answer in time, or throttles."""

    remedy = Remedy.RETRY
    exit_code = 4


class StoreDenied(StoreError):
    """An endpoint refuses our credential."""

    exit_code = 3


class ObjectMissing(StoreError):
    """An object that must be there is not."""

    remedy = Remedy.RETRY
    exit_code = 4


class EngineError(SternaError):
    """rclone or Spark is missing, too old, or failed as a whole."""

    remedy = Remedy.RETRY
    exit_code = 4


class EngineRefused(EngineError):
    """Spark doesn't read or write a table as it is, and no later run will: somebody has to change either."""

    remedy = Remedy.STOP
    exit_code = 5


class NoIceberg(EngineError):
    """Spark's driver hasn't got Iceberg's runtime, and no later run will find it there."""

    remedy = Remedy.STOP


class Busy(SternaError):
    """A sync or a clean-up is at work in the region, and the other has to wait until it is over."""

    remedy = Remedy.RETRY
    exit_code = 4


class QueryError(SternaError):
    """A named query has no answer."""

    allows_multiline = False


class BadRequest(QueryError):
    """What was asked isn't what the query takes."""

    exit_code = 2


class UnfitParameters(BadRequest):
    """The query can't be answered for the values of its parameters, whatever the rows are; or a figure has no row."""


class NoSuchQuery(QueryError):
    """There is no such query, or no such table here."""

    exit_code = 2


class NotAllowed(QueryError):
    """A rule keeps the table from whoever asks."""

    exit_code = 3


class SnapshotGone(QueryError):
    """The snapshot that was asked for is here no longer, or never was."""


class NotYetHere(QueryError):
    """`main` has the snapshot that was asked for, and this region not yet."""

    remedy = Remedy.RETRY
    exit_code = 4


class AnswerTooLarge(QueryError):
    """The answer has more rows or bytes than it may have."""


class QueueFull(QueryError):
    """Too many queries wait already."""

    remedy = Remedy.RETRY
    exit_code = 4


class OutOfTime(QueryError):
    """The query ran for longer than it may."""


class QueryEnded(QueryError):
    """The process that answers queries is ending, and the run with it."""

    remedy = Remedy.RETRY
    exit_code = 4


class NeedsSpark(QueryError):
    """A table that the gateway's own engine doesn't read exactly."""


class QueryFailed(QueryError):
    """The engine refused the query, or the process that ran it died."""


class ChangesError(SternaError):
    """The rows between two snapshots can't be told."""

    allows_multiline = False


class Gap(ChangesError):
    """A snapshot, or the way between two, is not kept."""

    exit_code = 6


class NotAnAncestor(ChangesError):
    """The snapshot to start from is no ancestor of the one to end at."""

    exit_code = 6


class NotAKey(ChangesError):
    """Several rows of a snapshot have the same key."""

    exit_code = 2


class NeedsClassicSpark(ChangesError):
    """Spark Connect doesn't show the JVM in which changes are planned."""

    exit_code = 2


class OutletError(SternaError):
    """An event can't be sent on."""

    allows_multiline = False


class ReceiverUnreachable(OutletError):
    """A receiver or broker doesn't acknowledge an event."""

    remedy = Remedy.RETRY
    exit_code = 4


class EventRefused(OutletError):
    """A receiver or broker says that it never takes this event."""


class OutletDisabled(OutletError):
    """A receiver says that it wants no events any more."""


class WapError(SternaError):
    """A batch or a step can't be put on `main`."""

    allows_multiline = False


class TableMoved(WapError):
    """Others changed the table between each look and the commit after it; nothing of ours was committed."""

    remedy = Remedy.RETRY
    exit_code = 4


class OutOfTurn(WapError):
    """An earlier number of the same channel isn't on `main` yet."""

    remedy = Remedy.RETRY
    exit_code = 4


class MarkMoved(WapError):
    """The channel's mark isn't what the step was made for: it has to be made anew."""


class Rewound(WapError):
    """The channel's mark says that rows are on `main`, and the table's history says that they aren't any more."""

    exit_code = 6


class NotStaged(WapError):
    """What is written would be live at once, or was: nothing may be put on `main` without an id."""


class BatchRejected(WapError):
    """The audit of what was staged says no: it stays staged, and readers never see it."""

    exit_code = 5


class TableGone(WapError):
    """There is no such table on `main`, or there is no longer."""


class FlowError(SternaError):
    """A table can't follow another one."""

    allows_multiline = False


class FlowStopped(FlowError):
    """How far a flow has come isn't certain: its target has rows and no mark, or a rebuild isn't done."""

    exit_code = 6


class NotOnlyAdded(FlowError):
    """The source deleted or updated rows, and the flow only appends what is new."""

    exit_code = 6


class StepUnfinished(FlowError):
    """A flow's step began and has not come to an end: its process was killed, or can't be reached."""

    remedy = Remedy.RETRY
    exit_code = 4


class FeaturesError(SternaError):
    """Features can't be kept, told or joined to labels."""

    allows_multiline = False


class FeatureStoreUnreachable(FeaturesError):
    """The store of features gives no answer in time, is loading, or is a copy that takes no writes."""

    remedy = Remedy.RETRY
    exit_code = 4


class FeatureStoreRefused(FeaturesError):
    """The store of features understood and said no."""


class FeatureStoreFull(FeaturesError):
    """The store of features has no memory left for what is written."""


class FeaturesMoved(FeaturesError):
    """Another run fills the view by now: what this one would write could be older."""

    remedy = Remedy.RETRY
    exit_code = 4


class UnfitView(FeaturesError):
    """A view's table hasn't got the columns that the view names, or not in types that can be kept."""

    exit_code = 2


class LabelTooOld(FeaturesError):
    """A label is older than the history that the table keeps: what was known then can't be told."""


class IngestError(SternaError):
    """Something that came in can't be taken, or not be brought further."""

    allows_multiline = False


class BadDrop(IngestError):
    """What was sent can't be read as what it says it is: it is cut, broken or of another kind."""


class DropOverLimit(IngestError):
    """What was sent is larger, longer or deeper than the tenant's limits allow; the message names the setting."""


class KeyReused(IngestError):
    """An idempotency key that stands for other content already."""


class LeaseLost(IngestError):
    """A worker's batch was given to somebody else, or is settled: he stops, and takes another one."""

    remedy = Remedy.RETRY
    exit_code = 4


class TrackerContradicts(IngestError):
    """The tracker says of a batch what can't be true: published where it is to be rejected, or the other way."""

    exit_code = 7


class TrackerLost(IngestError):
    """The inbox is in use, and the tracker isn't its own: it was lost, or another database is named."""

    exit_code = 7


class TrackerTooNew(IngestError):
    """A newer sterna has made the tracker's tables: this one would not understand them."""

    exit_code = 2


class TopicUnreachable(IngestError):
    """A Kafka that messages are read from doesn't answer, or lets nobody read."""

    remedy = Remedy.RETRY
    exit_code = 4


class TopicRecreated(IngestError):
    """A topic is another one than its position was kept for: it was deleted and made anew, and offsets start again."""

    exit_code = 5


class MessagesGone(IngestError):
    """Messages that were not read yet are no longer in their topic, or it ends before what was read of it."""

    exit_code = 5


class CdcError(SternaError):
    """A database's changes can't be followed."""

    allows_multiline = False


class SourceUnreachable(CdcError):
    """The engine that reads a database's changes ended, or doesn't get an answer."""

    remedy = Remedy.RETRY
    exit_code = 4


class UnfitSource(CdcError):
    """The database isn't set up for being followed, or has a table or a value that can't be."""

    exit_code = 2


class SlotLost(CdcError):
    """The database has forgotten changes that were not read yet: its slot is gone, or was invalidated."""

    exit_code = 6


class PositionLost(CdcError):
    """A database's log hasn't got the place up to which it was read: purged, begun anew, or another server's."""

    exit_code = 6


class PurgeNear(CdcError):
    """A database is about to purge log that was not read yet."""

    exit_code = 5


class LogKept(CdcError):
    """A database keeps more log for its reader than it may before that is an alarm."""

    exit_code = 5


class NotRead(CdcError):
    """Nobody has read a database for longer than `read_alarm` says."""

    exit_code = 5


class NeedsResync(CdcError):
    """What happened to a table can't be told by changes of rows: it has to be read again from its database."""

    exit_code = 6


class ReplicaBroken(SternaError):
    """A file that a kept head of the replica needs can't be read.

    What it names is unknown, so nothing may be deleted.
    """

    exit_code = 7


class UpkeepBlocked(SternaError):
    """What upkeep may let go isn't known, or a region has to be waited for: nothing is expired, nothing deleted."""

    exit_code = 8


class TableError(SternaError):
    """One table can't be localized now: it is held at its last good version."""

    remedy = Remedy.HOLD
    exit_code = 5
    allows_multiline = False


class UnregisteredUri(TableError):
    """A URI lies outside every prefix of the registry."""


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
    """Reading the table's metadata ended two plans before: it is not read again until somebody asks for it by name."""


class SourceGone(TableError):
    """A listed file is gone at its source."""


class NotCopied(TableError):
    """A listed file is at its source and yet does not arrive, while others do."""


class SizeDiffers(TableError):
    """An object's real size is not the size that its metadata says."""


class NotLocalized(TableError):
    """A localized file that was about to be published is gone, or has another length than what names it says."""


class Damaged(TableError):
    """A file of the replica that its head reaches is not what sterna wrote: `repair` alone writes over it."""


def remedy_of(class_name: str) -> Remedy:
    """Return the remedy of an error by the name of its class; HOLD where this version knows no such error."""
    error_class = globals().get(class_name)
    return error_class.remedy if isinstance(error_class, type) and issubclass(error_class, SternaError) else Remedy.HOLD
