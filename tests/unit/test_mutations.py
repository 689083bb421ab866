"""Faults that `tests.mutations` plants fit the code, and a test finds one only when nothing else can be the reason.

A fault that no longer fits would go unjudged; so would one whose tests have other names by now. A test that fails with
a fault, and now and then without, or that fails in any case, says nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutations.hunt import Hunt, planted
from tests.mutations.model import Mutation, Result
from tests.mutations.planted import MUTATIONS

_TESTS = Path(__file__).parents[1]
_SOURCES = _TESTS.parent / "plugins" / "sterna"
_FAULT = Mutation(
    "n", "c", "a.py", "right", "wrong", "h", ("unit/c",), ("integration/c",), first=("unit/test_a.py::test_a",)
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_fault_can_be_planted(mutation: Mutation, tmp_path: Path):
    source = _SOURCES / mutation.file
    file = tmp_path / "plugins" / "sterna" / mutation.file
    file.parent.mkdir(parents=True)
    file.write_text(source.read_text())
    with planted(tmp_path, mutation):
        assert file.read_text() != source.read_text()
    assert file.read_text() == source.read_text()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_tests_that_find_a_fault_are_there(mutation: Mutation):
    assert mutation.first
    for path in mutation.first:
        file, _, test = path.partition("::")
        text = (_TESTS / file).read_text()
        assert not test or f"def {test}(" in text or f"class {test}:" in text


class Scripted(Hunt):
    """Runs no tests; says which of them fail.

    Args:
        failing: given the planted text, the paths, and the number of the run, returns the test that fails, "" for none.
    """

    def __init__(self, copy: Path, failing: Callable[[bool, Sequence[str], int], str], *, only_first: bool = False):
        super().__init__(copy, 0, 1.0, lambda line: None, only_first=only_first)
        self.failing, self.runs = failing, list[tuple[bool, tuple[str, ...]]]()

    def _run(self, paths: Sequence[str], stage: int, *more: str) -> tuple[int | None, str]:
        is_planted = "wrong" in (self.copy / "plugins/sterna/a.py").read_text()
        self.runs.append((is_planted, tuple(paths)))
        if {f"tests/{path}" for path in paths} <= self._unreliable:
            return 5, "no tests ran"
        failed = self.failing(is_planted, paths, len(self.runs))
        return (1, f"FAILED {failed} - AssertionError: no\n") if failed not in ("", *self._unreliable) else (0, "")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name, text in (("plugins/sterna/a.py", "right"), ("tests/unit/test_a.py", "def test_a(): pass")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


_A = "tests/unit/test_a.py::test_a"
_ALL = [("unit/test_a.py::test_a",), ("unit/c",), ("unit", "simulation"), ("integration/c",)]


@pytest.mark.parametrize(
    ("failing", "result"),
    [
        (lambda planted, paths, run: _A if planted else "", Result("n", "found", _A, "AssertionError: no")),
        (lambda planted, paths, run: "", Result("n", "missed")),
        (lambda planted, paths, run: _A, Result("n", "undecided", how=f"left out: {_A}")),
        (
            lambda planted, paths, run: _A if run == 1 else "",
            Result("n", "undecided", how=f"left out: {_A}"),
        ),
    ],
    ids=["found", "missed", "fails in any case", "fails now and then"],
)
def test_a_fault_is_found_by_a_test_that_fails_twice_and_passes_without(
    copy: Path, failing: Callable[[bool, Sequence[str], int], str], result: Result
):
    hunt = Scripted(copy, failing)
    assert replace(hunt.look_for(_FAULT), seconds=0.0) == result
    if result.verdict == "found":
        assert [is_planted for is_planted, _ in hunt.runs] == [True, False, True]
    else:
        assert [paths for paths in _ALL if (True, paths) not in hunt.runs] == [], "it went on to the other tests"


def test_who_runs_only_the_tests_that_are_named_can_not_tell_that_a_fault_is_missed(copy: Path):
    hunt = Scripted(copy, lambda planted, paths, run: "", only_first=True)
    assert hunt.look_for(_FAULT).verdict == "undecided"
    assert hunt.runs == [(True, _ALL[0])]


@pytest.mark.parametrize(
    ("name", "run"), [("unit/test_a.py::test_b", [(True, ("unit/test_a.py",))]), ("unit/test_b.py::test_b", [])]
)
def test_in_another_tree_the_file_stands_for_a_test_that_it_lacks(copy: Path, name: str, run: list[object]):
    hunt = Scripted(copy, lambda planted, paths, run: "", only_first=True)
    hunt.look_for(Mutation(**{**vars(_FAULT), "first": (name,)}))
    assert hunt.runs == run
