"""What is garbage, over random listings: never what is reached, elsewhere, young, or new since the pass before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.errors import UsageError
from sterna.maintenance.deletion.file_lists import Files
from sterna.maintenance.deletion.model import Amount
from sterna.maintenance.deletion.passes import Pass
from sterna.maintenance.gc.decide import FILE, Rules, classify_files, select_garbage
from sterna.maintenance.gc.model import GcOptions
from sterna.replication.replica.reachability import ReachedFiles, UriScope

NOW = datetime(2026, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ROOT = "s3://eu-lake/replica"
REGISTRY = Registry.model_validate(
    {
        "regions": [{"name": "eu", "replica_root": ROOT, "catalog": {"read": "http://127.0.0.1:1/api/v2"}}],
        "locations": [{"id": "eu-lake", "prefix": "s3://eu-lake", "region": "eu", "remote": {"type": "s3"}}],
    }
)
MAPPING = Mapping(REGISTRY, REGISTRY.region("eu"))

names = st.sampled_from("ab")  # few, so that passes, heads and listings meet
places = st.sampled_from(
    [
        f"{ROOT}/eu-lake",
        f"{ROOT}/eu-lake~s3a/t",
        f"{ROOT}/us-lake/t",
        f"{ROOT}/_localized/us-lake",
        f"{ROOT}/_localized/_3-1/us-lake",
        f"{ROOT}/_localized/_3",
        f"{ROOT}/_localized",
        f"{ROOT}/_sterna/runs/r",
        f"{ROOT}/_sterna/collect",
        f"{ROOT}/_sterna/dead/pager",
        f"{ROOT}/_sterna/verbatim/us-lake/t",
        f"{ROOT}/_sterna/verbatim",
        f"{ROOT}/_sterna",
        f"{ROOT}/unknown",
        ROOT,
        "s3://eu-lake/warehouse",
        "s3://eu-lake/replica-old/us-lake",
    ]
)
uris = st.builds(lambda place, name: f"{place}/{name}", places, names)
times = st.integers(0, 400).map(lambda hours: NOW - hours * HOUR)
listings = st.dictionaries(uris, st.tuples(st.integers(0, 9), times), max_size=30)
passes = st.lists(
    st.tuples(times, st.frozensets(uris) | st.just(frozenset(f"{ROOT}/us-lake/t/{name}" for name in "ab"))), max_size=4
)


def reached_by(reachable: frozenset[str]) -> ReachedFiles:
    reached = ReachedFiles()
    reached.add(reachable)
    return reached


def uris_in(files: Files) -> list[str]:
    return [uri for part in files.parts() for uri in part.column("uri").to_pylist()]


def test_the_index_of_delays_stays_for_its_horizon_at_least() -> None:
    root = f"{ROOT}/_sterna/delays"
    files = {f"{root}/{days}.json": (1, NOW - days * 24 * HOUR) for days in (2, 8, 30)}
    for keep, left in ((24, {"2.json"}), (24 * 20, {"2.json", "8.json"})):
        law = rules([(NOW - 30 * HOUR, frozenset(files))], keep=keep)
        assert {uri for uri, (_, at) in files.items() if not law.is_expired(uri, at)} == {
            f"{root}/{name}" for name in left
        }


def uris_of(unreachable: frozenset[str]) -> Callable[[], Iterator[pa.Table]]:
    rows = pa.table({"uri": pa.array(sorted(unreachable), pa.string())})
    return lambda: (rows.slice(start, 2) for start in range(0, len(rows), 2))


def rules(earlier: list[tuple[datetime, frozenset[str]]] = [], keep: int = 168, grace: int = 24) -> Rules:  # noqa: B006
    gc_passes = [Pass(at, uris_of(unreachable)) for at, unreachable in sorted(earlier, key=lambda item: item[0])]
    old = [item for item in gc_passes if item.written_at <= NOW - grace * HOUR]
    used = [*old[-1:], *(item for item in gc_passes if item.written_at > NOW - grace * HOUR)] if old else []
    return Rules(MAPPING, frozenset({"eu-lake", "us-lake"}), NOW, keep * HOUR, grace * HOUR, used)


def listed(files: dict[str, tuple[int, datetime]]) -> list[tuple[str, int, datetime]]:
    return [(uri, size, modified) for uri, (size, modified) in files.items()]


@settings(max_examples=400)
@example(  # evidence that something reaches all the same
    {f"{ROOT}/_sterna/runs/r/a": (0, NOW - HOUR)},
    frozenset({f"{ROOT}/_sterna/runs/r/a"}),
    frozenset(),
    [(NOW - HOUR, frozenset({f"{ROOT}/_sterna/runs/r/a"}))],
    1,
    1,
)
@given(listings, st.frozensets(uris), st.frozensets(uris), passes, st.integers(1, 200), st.integers(1, 48))
def test_only_garbage_is_garbage(files, reached, refused, earlier, keep, grace):
    law = rules(earlier, keep, grace)
    classified = classify_files(listed(files), law, reached_by(reached), reached_by(refused))
    chosen = uris_in(select_garbage(classified.unreachable, law))
    limit = NOW - grace * HOUR
    old = [at for at, _ in earlier if at <= limit]
    for uri in chosen:
        assert uri not in reached
        assert uri not in refused
        assert uri.startswith(f"{ROOT}/")
        assert files[uri][1] <= limit
        assert old, "never without an earlier pass"
        assert all(uri in names for at, names in earlier if at > max(old)), (
            "and never when a pass since then found it reachable"
        )
        assert any(uri in names for at, names in earlier if at == max(old))
        if "/_sterna/verbatim/" in uri:
            assert uri.split("/")[6] == "us-lake"
        elif "/_sterna/" in uri:
            assert files[uri][1] <= NOW - keep * HOUR
        else:
            assert uri.split("/")[4] in ("eu-lake", "eu-lake~s3a", "us-lake", "_localized")
    for uri in uris_in(classified.refused):
        assert uri in refused - reached
        assert law.classify(uri) == FILE


@given(listings, st.frozensets(uris))
def test_nothing_that_qualifies_is_left(files, reached):
    everything = frozenset(files)
    law = rules([(NOW - 30 * HOUR, everything)])
    classified = classify_files(listed(files), law, reached_by(reached), ReachedFiles())
    wanted = {
        uri
        for uri, (_, at) in files.items()
        if law.classify(uri) == FILE and uri not in reached and at <= NOW - 24 * HOUR
    }
    chosen = uris_in(select_garbage(classified.unreachable, law))
    assert {uri for uri in chosen if "/_sterna/" not in uri or "/_sterna/verbatim/" in uri} == wanted
    assert classified.objects == Amount(len(files), sum(size for size, _ in files.values()))


@pytest.mark.parametrize(("hours", "count"), [(0, 0), (23, 0), (24, 1), (25, 1)])
def test_a_file_that_is_younger_than_the_grace_stays_whatever_passes_say(hours: int, count: int):
    uri = f"{ROOT}/us-lake/t/f"
    law = rules([(NOW - 30 * HOUR, frozenset({uri}))])
    classified = classify_files(listed({uri: (1, NOW - hours * HOUR)}), law, ReachedFiles(), ReachedFiles())
    assert select_garbage(classified.unreachable, law).amount.files == count


def test_a_file_that_was_reachable_in_between_starts_anew():
    uri = f"{ROOT}/us-lake/t/f"
    files = {uri: (1, NOW - 100 * HOUR)}
    always = frozenset({uri})
    for earlier, count in (
        ([(NOW - 50 * HOUR, always), (NOW - 10 * HOUR, always)], 1),
        ([(NOW - 50 * HOUR, always), (NOW - 10 * HOUR, frozenset())], 0),
        ([(NOW - 50 * HOUR, always), (NOW - 30 * HOUR, frozenset())], 0),
        ([(NOW - 50 * HOUR, frozenset()), (NOW - 30 * HOUR, always)], 1),
        ([(NOW - 10 * HOUR, always)], 0),
    ):
        law = rules(earlier)  # type: ignore[arg-type]
        garbage_files = select_garbage(
            classify_files(listed(files), law, ReachedFiles(), ReachedFiles()).unreachable, law
        )
        assert garbage_files.amount.files == count, earlier


def test_records_that_are_still_needed_stay():
    at = [NOW - hours * HOUR for hours in (400, 300, 200)]
    files = {f"{ROOT}/_sterna/collect/{number}.parquet": (1, moment) for number, moment in enumerate(at)}
    law = rules([(moment, frozenset(files)) for moment in at])
    garbage_files = select_garbage(classify_files(listed(files), law, ReachedFiles(), ReachedFiles()).unreachable, law)
    assert uris_in(garbage_files) == [f"{ROOT}/_sterna/collect/{number}.parquet" for number in (0, 1)]


def test_what_tells_that_something_stands_still_stays_however_old_it_is():
    """A flow that fails for longer than `keep` would look well without its file."""
    files = {f"{ROOT}/_sterna/{name}": (1, NOW - 4000 * HOUR) for name in ("flows/dwd.json", "features/user.json")}
    law = rules([(NOW - 300 * HOUR, frozenset(files))])
    classified = classify_files(listed(files), law, ReachedFiles(), ReachedFiles())
    assert classified.unknown == Amount()
    assert uris_in(select_garbage(classified.unreachable, law)) == []


def test_dead_letters_wait_for_an_operator_and_are_no_strangers():
    letter = f"{ROOT}/_sterna/dead/pager/20260101T000000.000000Z-ab-1.json"
    law = rules([(NOW - 300 * HOUR, frozenset({letter}))])
    classified = classify_files([(letter, 5, NOW - 400 * HOUR)], law, ReachedFiles(), ReachedFiles())
    assert (classified.objects, classified.unknown, classified.evidence) == (Amount(1, 5), Amount(), Amount())
    assert (classified.unreachable.amount, select_garbage(classified.unreachable, law).amount) == (Amount(), Amount())


def test_a_verbatim_copy_that_may_belong_to_a_table_in_transit_stays():
    uri = f"{ROOT}/_sterna/verbatim/us-lake/t/m.avro"
    law = rules([(NOW - 90 * HOUR, frozenset({uri}))])
    classified = classify_files([(uri, 5, NOW - 80 * HOUR)], law, ReachedFiles(), ReachedFiles())
    assert (classified.verbatim, classified.unreachable.amount) == (Amount(1, 5), Amount(1, 5))
    for since, count in ((90, 0), (70, 1)):
        in_transit = replace(law, in_transit_since=NOW - since * HOUR)
        assert select_garbage(classified.unreachable, in_transit).amount.files == count


@pytest.mark.parametrize(
    "path",
    [
        *("_sterna/verbatim/us-lake", "_sterna/verbatim/us-lake/a//b", "_sterna/verbatim/UPPER/x"),
        *("us-lake/a//b", "us-lake/a/../b", "us-lake/%2e%2e/b", "us-lake", "UPPER/x"),
        *("_localized/us-lake", "_localized/_3/us-lake", "_localized/_0/us-lake/x"),
    ],
)
def test_what_sterna_can_not_have_written_is_left_alone(path: str):
    law = rules([(NOW - 30 * HOUR, frozenset({f"{ROOT}/{path}"}))])
    classified = classify_files([(f"{ROOT}/{path}", 5, NOW - 100 * HOUR)], law, ReachedFiles(), ReachedFiles())
    assert (classified.unknown, classified.unreachable.amount) == (Amount(1, 5), Amount())


def test_reached_is_asked_in_the_roots_own_spelling():
    spelled = [f"{ROOT}/a", "s3a://eu-lake/replica/b", "s3://eu-lake/replica-old/c", "s3://eu-lake/d"]
    assert list(UriScope(ROOT).filter(spelled)) == [f"{ROOT}/a", f"{ROOT}/b"]


def test_reached_may_grow_between_questions():
    reached = ReachedFiles()
    assert reached.contains(["a"]).to_pylist() == [False]
    reached.add(["b", "a"])
    assert reached.contains(["a", "c"]).to_pylist() == [True, False]
    reached.add(["c"])
    assert reached.contains(["a", "b", "c", "d"]).to_pylist() == [True, True, True, False]


def test_a_grace_that_no_query_could_rely_on_is_refused():
    with pytest.raises(UsageError, match="1h"):
        GcOptions(grace=timedelta(minutes=59))
