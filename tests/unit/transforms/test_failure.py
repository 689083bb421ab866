"""Why a flow failed: read while its mark is what it was, and never in the way of what it tells of."""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.config.registry.folders import TRANSFORMS, state_folder
from sterna.errors import FlowError, NotAKey, StoreUnreachable
from sterna.pipelines.transforms.failure import read_failure, write_failure
from sterna.pipelines.transforms.write import statement_sqlstate
from tests.support.small_world import make_world


def test_it_counts_while_the_mark_is_what_it_was(tmp_path: Path) -> None:
    context = make_world(tmp_path).context()
    assert read_failure(context, "dwd", "") is None
    write_failure(context, "dwd", "7/1", NotAKey("several rows\x1b[2J", table="a.b", hint="name more"))
    failure = read_failure(context, "dwd", "7/1")
    assert failure is not None
    assert (failure.kind, failure.exit_code) == ("NotAKey", NotAKey.exit_code)
    assert "several rows" in failure.reason
    assert "\x1b" not in failure.reason
    assert read_failure(context, "dwd", "8/1") is None
    assert read_failure(context, "dws", "7/1") is None


@pytest.mark.parametrize("damaged", [b"", b"{", b"\xff", b"[]", b"{}", b'{"at": "yesterday"}'])
def test_what_cannot_be_read_is_not_taken_for_no_failure(tmp_path: Path, damaged: bytes) -> None:
    context = make_world(tmp_path).context()
    context.objects.overwrite(f"{state_folder(context.region.replica_root, TRANSFORMS)}/dwd.json", damaged)
    with pytest.raises(
        FlowError, match=r"whether the last step of transform dwd failed is unknown.*dwd\.json"
    ) as damage:
        read_failure(context, "dwd", "7/1")
    assert damage.value.exit_code != 0


def test_a_store_that_takes_nothing_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_world(tmp_path).context()

    def refuse(uri: str, data: bytes) -> int:
        raise StoreUnreachable("dark")

    monkeypatch.setattr(context.objects, "overwrite", refuse)
    write_failure(context, "dwd", "7", NotAKey("several rows"))


@pytest.mark.parametrize(
    ("said", "stops"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", True),
        ("[CAST_INVALID_INPUT] The value 'x' SQLSTATE: 22018\n== SQL ==", True),
        ("[NOT_NULL_ASSERT_VIOLATION] NULL value SQLSTATE: 42000", True),
        ("[USER_RAISED_EXCEPTION] no SQLSTATE: P0001", True),
        ("java.net.ConnectException: refused", False),
        ("[UNABLE_TO_ACQUIRE_MEMORY] SQLSTATE: 53200", False),
        ("[FAILED_READ_FILE.NO_HINT] SQLSTATE: KD001", False),
    ],
)
def test_what_the_statement_is_to_blame_for_waits_for_somebody(said: str, stops: bool) -> None:
    assert bool(statement_sqlstate(said)) is stops
