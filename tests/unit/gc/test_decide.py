"""What is garbage, over random listings: never what is reached, elsewhere, young, or new since the pass before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sterna.cleaning.files import Files
from sterna.cleaning.model import Amount
from sterna.cleaning.passes import Pass
from sterna.errors import UsageError
from sterna.gc.decide import FILE, Rules, garbage, sort_out
from sterna.gc.model import GcOptions
from sterna.registry.mapping import Mapping
from sterna.registry.model import Registry
from sterna.replica.reach import Below, ReachedFiles

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


def reached_by(found: frozenset[str]) -> ReachedFiles:
    reached = ReachedFiles()
    reached.add(found)
    return reached


def uris_in(files: Files) -> list[str]:
    return [uri for part in files.parts() for uri in part.column("uri").to_pylist()]


def uris_of(found: frozenset[str]) -> Callable[[], Iterator[pa.Table]]:
    rows = pa.table({"uri": pa.array(sorted(found), pa.string())})
    return lambda: (rows.slice(start, 2) for start in range(0, len(rows), 2))


def rules(earlier: list[tuple[datetime, frozenset[str]]] = [], keep: int = 168, grace: int = 24) -> Rules:  # noqa: B006
    made = [Pass(at, uris_of(found)) for at, found in sorted(earlier, key=lambda item: item[0])]
    old = [item for item in made if item.at <= NOW - grace * HOUR]
    used = [*old[-1:], *(item for item in made if item.at > NOW - grace * HOUR)] if old else []
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
    found = sort_out(listed(files), law, reached_by(reached), reached_by(refused))
    chosen = uris_in(garbage(found.unreachable, law))
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
        if "/_sterna/" in uri:
            assert files[uri][1] <= NOW - keep * HOUR
        else:
            assert uri.split("/")[4] in ("eu-lake", "eu-lake~s3a", "us-lake", "_localized")
    for uri in uris_in(found.refused):
        assert uri in refused - reached
        assert law.kind(uri) == FILE


@given(listings, st.frozensets(uris))
def test_nothing_that_qualifies_is_left(files, reached):
    everything = frozenset(files)
    law = rules([(NOW - 30 * HOUR, everything)])
    found = sort_out(listed(files), law, reached_by(reached), ReachedFiles())
    wanted = {
        uri for uri, (_, at) in files.items() if law.kind(uri) == FILE and uri not in reached and at <= NOW - 24 * HOUR
    }
    assert {uri for uri in uris_in(garbage(found.unreachable, law)) if "/_sterna/" not in uri} == wanted
    assert found.objects == Amount(len(files), sum(size for size, _ in files.values()))


@pytest.mark.parametrize(("hours", "count"), [(0, 0), (23, 0), (24, 1), (25, 1)])
def test_a_file_that_is_younger_than_the_grace_stays_whatever_passes_say(hours: int, count: int):
    uri = f"{ROOT}/us-lake/t/f"
    law = rules([(NOW - 30 * HOUR, frozenset({uri}))])
    found = sort_out(listed({uri: (1, NOW - hours * HOUR)}), law, ReachedFiles(), ReachedFiles())
    assert garbage(found.unreachable, law).amount.files == count


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
        found = garbage(sort_out(listed(files), law, ReachedFiles(), ReachedFiles()).unreachable, law)
        assert found.amount.files == count, earlier


def test_records_that_are_still_needed_stay():
    at = [NOW - hours * HOUR for hours in (400, 300, 200)]
    files = {f"{ROOT}/_sterna/collect/{number}.parquet": (1, moment) for number, moment in enumerate(at)}
    law = rules([(moment, frozenset(files)) for moment in at])
    found = garbage(sort_out(listed(files), law, ReachedFiles(), ReachedFiles()).unreachable, law)
    assert uris_in(found) == [f"{ROOT}/_sterna/collect/{number}.parquet" for number in (0, 1)]


def test_what_tells_that_something_stands_still_stays_however_old_it_is():
    """A flow that fails for longer than `keep` would look well without its file."""
    files = {f"{ROOT}/_sterna/{name}": (1, NOW - 4000 * HOUR) for name in ("flows/dwd.json", "features/user.json")}
    law = rules([(NOW - 300 * HOUR, frozenset(files))])
    found = sort_out(listed(files), law, ReachedFiles(), ReachedFiles())
    assert found.strange == Amount()
    assert uris_in(garbage(found.unreachable, law)) == []


def test_dead_letters_wait_for_an_operator_and_are_no_strangers():
    letter = f"{ROOT}/_sterna/dead/pager/20260101T000000.000000Z-ab-1.json"
    law = rules([(NOW - 300 * HOUR, frozenset({letter}))])
    found = sort_out([(letter, 5, NOW - 400 * HOUR)], law, ReachedFiles(), ReachedFiles())
    assert (found.objects, found.strange, found.evidence) == (Amount(1, 5), Amount(), Amount())
    assert (found.unreachable.amount, garbage(found.unreachable, law).amount) == (Amount(), Amount())


@pytest.mark.parametrize(
    "path",
    [
        *("us-lake/a//b", "us-lake/a/../b", "us-lake/%2e%2e/b", "us-lake", "UPPER/x"),
        *("_localized/us-lake", "_localized/_3/us-lake", "_localized/_0/us-lake/x"),
    ],
)
def test_what_sterna_can_not_have_written_is_left_alone(path: str):
    law = rules([(NOW - 30 * HOUR, frozenset({f"{ROOT}/{path}"}))])
    found = sort_out([(f"{ROOT}/{path}", 5, NOW - 100 * HOUR)], law, ReachedFiles(), ReachedFiles())
    assert (found.strange, found.unreachable.amount) == (Amount(1, 5), Amount())


def test_reached_is_asked_in_the_roots_own_spelling():
    spelled = [f"{ROOT}/a", "s3a://eu-lake/replica/b", "s3://eu-lake/replica-old/c", "s3://eu-lake/d"]
    assert list(Below(ROOT).of(spelled)) == [f"{ROOT}/a", f"{ROOT}/b"]


def test_reached_may_grow_between_questions():
    reached = ReachedFiles()
    assert reached.has(["a"]).to_pylist() == [False]
    reached.add(["b", "a"])
    assert reached.has(["a", "c"]).to_pylist() == [True, False]
    reached.add(["c"])
    assert reached.has(["a", "b", "c", "d"]).to_pylist() == [True, True, True, False]


def test_a_grace_that_no_query_could_rely_on_is_refused():
    with pytest.raises(UsageError, match="1h"):
        GcOptions(grace=timedelta(minutes=59))
