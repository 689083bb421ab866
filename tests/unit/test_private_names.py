"""No test depends on a private name of sterna's, nor on a dotted name in a string that patches something.

Whoever renames a private function, or cuts it in two, changes no behaviour: so no test may have to change. A test that
needs a shorter limit, a clock or another part passes it, or puts it in the place of a public one.

What else falls under it: an import of a private name, `x._name` of anything but the test's own class, `getattr` and
`setattr` with such a name, a patch by a string of dots, private names in the code of a process that a test starts, an
argument by such a name, and a test's class that takes the place of a private method of sterna's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PRIVATE = re.compile(r"_[A-Za-z]\w*")
_PATCHES = {"setattr", "delattr", "getattr", "hasattr", "object", "patch", "setitem"}
_WORD = re.compile(r"(?<!\w)_[A-Za-z]\w*")
_QUOTED = re.compile(r"[\"']sterna\.")
_DOTTED = re.compile(r"sterna(\.\w+)+")
_IN_CODE = re.compile(r"\w\.(_[A-Za-z]\w*)")

ALLOWED = {
    "conftest.py: _config": "httpx has no other place for the timeout that its clients have by default",
    "support/writer_catalog.py: _table": "PyIceberg's transaction tells its table and updates nowhere else",
}
"""Private names that a test may use, as `file: name`, each with the reason."""
_SPARKS = frozenset({"_gateway", "_jvm"})
"""PySpark's ways into the JVM, which all use who ask Iceberg itself."""


def names(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a module defines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def private(tree: ast.AST) -> frozenset[str]:
    """Return the private names that a module, or a class, defines."""
    return frozenset(filter(_PRIVATE.fullmatch, names(tree)))


@dataclass(frozen=True)
class Private:
    """The private names of some modules, and their classes."""

    names: frozenset[str]
    classes: Mapping[str, ast.ClassDef]


def private_names(*modules: str) -> Private:
    trees = list(map(ast.parse, modules))
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return Private(frozenset().union(*map(private, trees)) - _SPARKS, classes)


@cache
def sternas() -> Private:
    return private_names(*(path.read_text() for path in (_ROOT / "plugins/sterna").rglob("*.py")))


def inherited(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Return the private names of sterna's that a class uses or replaces of the classes that it is made from."""
    bases = (ast.unparse(base).rpartition(".")[2] for base in node.bases)
    theirs = frozenset().union(*(private(classes[base]) for base in bases if base in classes))
    used = {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)} if theirs else set()
    return set(theirs & (used | private(node)))


def uses(text: str, sternas: Private) -> set[str]:
    """Return the private names that a test's module depends on."""
    if sternas.names.isdisjoint(_WORD.findall(text)) and not _QUOTED.search(text):
        return set()  # which spares most of the parsing
    tree = ast.parse(text)
    own, theirs = private(tree), sternas.names
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    methods = {id(node) for class_node in classes for node in ast.walk(class_node)}
    used: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=imported) if module.partition(".")[0] == "sterna":
                used |= {alias.name for alias in imported if _PRIVATE.fullmatch(alias.name)}
            case ast.ClassDef():
                used |= inherited(node, sternas.classes)
            case ast.keyword(arg=str(name)) if name in theirs:
                used.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls")) if id(node) in methods:
                pass
            case ast.Attribute(attr=name) if name in theirs - own:
                used.add(name)
            case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called), args=arguments) if called in _PATCHES:
                texts = [argument.value for argument in arguments[:2] if isinstance(argument, ast.Constant)]
                used |= {literal for literal in texts if literal in theirs or _DOTTED.fullmatch(str(literal))}
            case ast.Constant(value=str(code)) if "import " in code and "sterna" in code:
                used |= set(_IN_CODE.findall(code)) & theirs
    return used


SYNC = private_names("class Sync:\n    def _run(self): pass")


def test_no_test_uses_a_private_name() -> None:
    used = {
        f"{path.relative_to(_ROOT / 'tests')}: {name}"
        for path in sorted((_ROOT / "tests").rglob("*.py"))
        if path != Path(__file__)
        for name in uses(path.read_text(), sternas())
    }
    assert used == set(ALLOWED)


@pytest.mark.parametrize(
    "text",
    [
        "from sterna.replication.sync.run import _run",
        "from sterna.replication.sync import run\nrun._run()",
        "opened.store._run.ping()",
        "monkeypatch.setattr(run, '_run', 1)",
        "with patch.object(run, '_run', 1): pass",
        "monkeypatch.setattr('sterna.replication.sync.run.sync', 1)",
        "code = 'import sterna.replication.sync.run as r; r._run()'",
        "Sync(_run=1)",
        "class Other(Sync):\n    def _run(self): pass",
        "def run(self): self._run()\nSync.run = run",
        "class Other(run.Sync):\n    def go(self): self._run()",
    ],
)
def test_each_way_to_depend_on_one_is_seen(text: str) -> None:
    assert uses(text, SYNC)


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def _run(self): self._run()",
        "def _run(): pass\na._run()",
        "spark._jvm.x",
        "x = '_run'",
        "x.run()",
    ],
)
def test_what_is_a_tests_own_or_anothers_is_not(text: str) -> None:
    assert not uses(text, SYNC)
