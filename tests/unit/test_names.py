"""Names are the field's nouns and verbs: filler words are counted and may not come back, and nothing is a person.

`python -m tests.unit.test_names` prints where the counted words stand.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

FILLERS = frozenset({"found", "each", "known", "told", "given", "made", "said"})
MOST_FILLERS = 300
"""Uses of them in names; before the names were changed there were 5,365."""
NAMES_WITH_FILLERS = {
    "AirflowNotFoundException": "Airflow's",
    "FileNotFoundError": "Python's",
    "ModuleNotFoundError": "Python's",
    "PackageNotFoundError": "Python's",
    "connection_made": "asyncio's, of a protocol",
    "known": "a word of its own: who the primary is can be known, or not",
    "NOT_FOUND": "HTTP's and gRPC's name of a status",
    "ReferenceNotFound": "the name of an error, which stands in lists of held tables",
}
VAGUE = frozenset({"result", "data", "value", "item", "obj", "info", "tmp", "entry"})
MOST_VAGUE = 4105 * 11 // 10
"""Uses of these, which are no better: a tenth more than there were before."""

_PERSONS = """
who whoever whom whose whosoever him he his she her hers people person somebody someone anybody nobody everybody
ask asks asked asking asker askers say says saying said sayer tell tells telling know knows knowing
want wants wanted hear hears believe believes remember remembers forget forgets
heart hearts shop shops shelf shelves bench benches room rooms guest guests
"""
PERSONS = frozenset(_PERSONS.split())
"""Words of people and of places where they are, which no class, function or module is named by."""
ALLOWED = {
    "tell": "the name that Python's file objects have for their position",
    "events_forget": "the command `sterna events forget`, which removes an outlet's position",
}

RETIRED: Mapping[str, tuple[str, ...]] = {
    "lane": ("pipelines", "serving", "text"),
    "reseed": ("",),
    "epoch": ("",),
    "drops": ("pipelines", "text"),
    "flow": ("",),
    "mark": ("pipelines/cdc", "pipelines/ingest", "pipelines/transforms", "text"),
}
"""Words that something else has, or nothing any more, and below which folders no name has them: the sync's `lane`."""
RETIRED_ALLOWED = {
    **dict.fromkeys(("_EPOCH", "_UNIX_EPOCH"), "1970, as everywhere"),
    **dict.fromkeys(("FlowError", "FlowStopped"), "the names of errors, which stand in records of failures"),
    "epoch": "the parameter of a file of SQL, as its column is named",
    **dict.fromkeys(("mark_published", "mark_rejected", "mark_staged"), "the verb"),
    **dict.fromkeys(("markBatchFinished", "markProcessed"), "Debezium's"),
}


def words(name: str) -> list[str]:
    """Return the words of a name, in small letters, however they are joined."""
    return [word.lower() for word in _WORD.findall(name)]


def names(tree: ast.AST) -> Iterator[str]:
    """Yield each name of a module as often as it stands there: definitions and uses, of whatever kind."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name, asname=other):
                yield (other or name).rpartition(".")[2]


def definitions(path: str, tree: ast.AST) -> Iterator[str]:
    """Yield the names of a module, of the packages that it is in, and of its classes and functions."""
    yield from Path(path).with_suffix("").parts
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def count(trees: Iterable[ast.AST], counted: frozenset[str]) -> int:
    """Return how often some words stand in names."""
    return sum(word in counted for tree in trees for name in names(tree) for word in words(name))


def names_with(trees: Iterable[ast.AST], counted: frozenset[str]) -> set[str]:
    """Return the names that have one of some words."""
    return {name for tree in trees for name in names(tree) if not counted.isdisjoint(words(name))}


def persons(modules: dict[str, ast.AST]) -> set[str]:
    """Return the names of classes, functions and modules that have a word of a person."""
    return {
        name
        for path, tree in modules.items()
        for name in definitions(path, tree)
        if not PERSONS.isdisjoint(words(name))
    }


def retired(modules: Mapping[str, ast.AST]) -> set[str]:
    """Return the names that have a retired word where it has no meaning."""
    return {
        name
        for path, tree in modules.items()
        for word, folders in RETIRED.items()
        if path.startswith(tuple(f"plugins/sterna/{folder}" for folder in folders))
        for name in names(tree)
        if not {word, f"{word}s"}.isdisjoint(words(name))
    }


@cache
def sources() -> dict[str, ast.AST]:
    """Return the modules of sterna, its DAGs and what starts it, by their paths."""
    paths = [_ROOT / "run.py", *(_ROOT / "plugins").rglob("*.py"), *(_ROOT / "dags").rglob("*.py")]
    return {str(path.relative_to(_ROOT)): ast.parse(path.read_text()) for path in sorted(paths)}


def test_filler_words_stay_out_of_names() -> None:
    assert names_with(sources().values(), FILLERS) == set(NAMES_WITH_FILLERS)
    assert count(sources().values(), FILLERS) <= MOST_FILLERS


def test_vague_words_did_not_take_their_place() -> None:
    assert count(sources().values(), VAGUE) <= MOST_VAGUE


def test_nothing_is_a_person_or_a_shop() -> None:
    assert persons(sources()) == set(ALLOWED)


def test_a_word_has_one_meaning() -> None:
    assert retired(sources()) == set(RETIRED_ALLOWED)


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("pipelines/ingest/model.py", "class Lane: pass", "Lane"),
        ("serving/http/ingest_limits.py", "usage.lanes", "lanes"),
        ("replication/failover/model.py", "CatalogSite(epoch=1)", "epoch"),
        ("cli/sync.py", "def reseed(): pass", "reseed"),
        ("pipelines/cdc/status.py", "last_mark = 1", "last_mark"),
        ("pipelines/transforms/step.py", "class FlowWriter: pass", "FlowWriter"),
    ],
)
def test_a_planted_second_meaning_is_seen(path: str, text: str, name: str) -> None:
    assert retired({f"plugins/sterna/{path}": ast.parse(text)}) == {name}


def test_the_sync_has_its_lanes() -> None:
    assert not retired({"plugins/sterna/replication/sync/run.py": ast.parse("class Lane: pass")})


@pytest.mark.parametrize(
    "text",
    [
        "found = 1",
        "def make_known(): pass",
        "class AsTold: pass",
        "def read(given): pass",
        "read(said=1)",
        "x.each_table",
        "from sterna import made_up",
        "import sterna.made",
        "import sterna as given",
        "class X:\n    def notFound(self): pass",
        "async def told_by(): pass",
        "HTTPFound",
    ],
)
def test_a_planted_filler_is_counted(text: str) -> None:
    assert count([ast.parse(text)], FILLERS) == 1
    assert not names_with([ast.parse(text)], FILLERS) <= set(NAMES_WITH_FILLERS)


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("plugins/sterna/sync/run.py", "class AskedQuery: pass", "AskedQuery"),
        ("plugins/sterna/sync/run.py", "def _read():\n    def who_reads(): pass", "who_reads"),
        ("plugins/sterna/sync/run.py", "class A:\n    async def knows(self): pass", "knows"),
        ("plugins/sterna/sync/heart_beat.py", "", "heart_beat"),
        ("plugins/sterna/rooms/run.py", "", "rooms"),
    ],
)
def test_a_planted_person_is_seen(path: str, text: str, name: str) -> None:
    assert persons({path: ast.parse(text)}) == {name}


def test_words_inside_words_are_none() -> None:
    assert not persons({"plugins/sterna/task.py": ast.parse("def mask_headroom(): pass\nclass Shopify: pass")})
    assert count([ast.parse("foundation = unknown = 1")], FILLERS) == 0


if __name__ == "__main__":
    places: dict[str, Counter[str]] = defaultdict(Counter)
    for path, tree in sources().items():
        for name in names(tree):
            for word in FILLERS.intersection(words(name)):
                places[f"{word}: {name}"][path] += 1
    for place, paths in sorted(places.items()):
        print(f"{place} {dict(paths)}")
