"""The region's stores as PyIceberg reads them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from sterna.concurrency.cancellation import Stop
from sterna.errors import BrokenMetadata, NeedsSpark, ObjectMissing, OutOfTime, QueryEnded, QueryFailed, SternaError
from sterna.serving.queries.job import PinnedTable, SparkRequest
from sterna.storage.objects import Objects
from sterna.storage.ranges import ObjectReader

_MAX_KEPT_TAILS = 256  # of 64 KiB
_MAX_KEPT_PLANS = 16
_MAX_KEPT_FILES = 1_000  # of a plan: some KiB each


class RegionFiles:
    """A region's stores, and what their files have shown: a process keeps both from one query to the next, since no
    file of a replica changes, but by a repair.

    Args:
        objects: the stores.

    Attributes:
        plans: the files of pinned tables, and what is known of those as a whole.
    """

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.plans: OrderedDict[PinnedTable, Any] = OrderedDict()
        self._tails: OrderedDict[str, bytes] = OrderedDict()

    def tail(self, uri: str) -> bytes:
        """Return a file's last bytes, where they are known, else nothing."""
        return self._tails.get(uri, b"")

    def keep_tails(self, tails: Mapping[str, bytes]) -> None:
        """Keep the last bytes of some files; those that were not needed for longest go."""
        for uri, tail in tails.items():
            self._tails[uri] = tail
            self._tails.move_to_end(uri)
        while len(self._tails) > _MAX_KEPT_TAILS:
            self._tails.popitem(last=False)

    def keep_plan(self, pin: PinnedTable, plan: Any, size: int) -> None:
        """Keep what is known of a pinned table.

        Args:
            size: files that it has.
        """
        if size <= _MAX_KEPT_FILES:
            self.plans[pin] = plan
        while len(self.plans) > _MAX_KEPT_PLANS:
            self.plans.popitem(last=False)


class ReadSession:
    """One query's reading: it ends with the query's time, and remembers what failed first.

    Args:
        files: the stores, and what is known of them.
        request_spark: lets Spark read something; None: there is none.
        stop: ends it, from another thread.
    """

    def __init__(
        self,
        files: RegionFiles,
        seconds: float,
        request_spark: Callable[[SparkRequest], str] | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.files, self.objects = files, files.objects
        self.failure: SternaError | None = None
        self._request_spark = request_spark
        self._stop = stop or Stop()
        self._deadline = time.monotonic() + seconds
        self.seconds = seconds

    def check_limits(self) -> None:
        """Check the deadline, and that a request still waits for the answer.

        Raises:
            OutOfTime: the deadline has passed.
            QueryEnded: every request was cancelled.
        """
        if self._stop.is_set:
            raise QueryEnded("the query was stopped")
        if time.monotonic() > self._deadline:
            raise OutOfTime(f"the query ran for more than {self.seconds:g} s")

    def record_failure(self, error: SternaError) -> None:
        """Record an error: its C++ caller passes on no more than its text."""
        self.failure = self.failure or error

    @contextmanager
    def attribute_errors(self, table: str, file: str) -> Iterator[None]:
        """Remember what ends the block, which reads a file of a table, as an error that names both."""
        try:
            yield
        except SternaError as error:
            self.record_failure(error)
            raise
        except Exception as error:
            self.record_failure(
                QueryFailed(f"the file can't be read: {type(error).__name__}: {error}", table=table, file=file)
            )
            raise

    def open_file(self, uri: str, size: int, tail: bytes = b"") -> ObjectReader:
        """Return a file of this region to read from.

        Args:
            tail: its last bytes, where they are known.

        Raises:
            BrokenMetadata: it is another region's: a replica names none of those.
            UnregisteredUri, UnsafeUri: as `Mapping.locate`.
        """
        self.location_id(uri)
        return ObjectReader(
            self.objects, uri, size, tail=tail, before_request=self.check_limits, on_error=self.record_failure
        )

    def location_id(self, uri: str) -> str:
        """Return the id of the location of this region in which a file lies.

        Raises:
            BrokenMetadata, UnregisteredUri, UnsafeUri: as `file`.
        """
        if not self.objects.mapping.is_local(uri):
            raise BrokenMetadata("the replica names a file of another region", file=uri)
        return self.objects.mapping.locate(uri).location.id

    def read_by_spark(self, request: SparkRequest, table: str) -> str:
        """Let Spark read something; return the file where that was put, "" where there are no rows.

        Raises:
            NeedsSpark: there is no Spark.
            EngineError, OutOfTime, QueryFailed: it can't.
        """
        try:
            if self._request_spark is None:
                raise NeedsSpark(request.reason, table=table)
            return self._request_spark(request)
        except SternaError as error:
            self.record_failure(error)
            raise


class _StoreInputFile(InputFile):
    def __init__(self, uri: str, session: ReadSession) -> None:
        super().__init__(uri)
        self._session = session

    def __len__(self) -> int:
        size = self._session.objects.size(self.location)
        if size is None:
            raise ObjectMissing("no such object", file=self.location)
        return size

    def exists(self) -> bool:
        return self._session.objects.size(self.location) is not None

    def open(self, seekable: bool = True) -> InputStream:
        return self._session.open_file(self.location, self._size())

    def _size(self) -> int:
        try:
            return len(self)
        except SternaError as error:
            self._session.record_failure(error)
            raise


class StoresIO(FileIO):
    """PyIceberg's way to the region's stores; it only reads."""

    def __init__(self, session: ReadSession) -> None:
        super().__init__({})
        self._session = session

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        return _StoreInputFile(location, self._session)

    def new_output(self, location: str) -> OutputFile:
        """Refuse."""
        raise NotImplementedError("queries write nothing")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Refuse."""
        raise NotImplementedError("queries delete nothing")
