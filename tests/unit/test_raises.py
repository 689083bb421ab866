"""A public function's `Raises:` names what the function raises itself; what it calls may raise more."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sterna import errors

_SOURCE = Path(__file__).parents[2] / "plugins" / "sterna"
_SECTION = re.compile(r"\n\s*Raises:\n(.*?)(?:\n\s*\n|\Z)", re.DOTALL)
_NAME = re.compile(r"^\s*([A-Z]\w+(?:, [A-Z]\w+)*): ", re.MULTILINE)
_UNNAMED = frozenset({"NotImplementedError", "AssertionError"})
"""What shows a mistake of the caller's program: nobody catches it."""
_NO_DOCSTRINGS = ("cli/",)
"""A command's docstring is its help, and its errors are exit codes."""
_LEAVES = frozenset(
    name for name, kind in vars(errors).items() if isinstance(kind, type) and not type.__subclasses__(kind)
)
"""The errors without a kind of their own: a function that is annotated with one of the others returns any below it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def ancestors(name: str) -> set[str]:
    """Return the names that stand for an error in `Raises:`: its own, and those of what it is a kind of."""
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    kinds = kind.__mro__ if isinstance(kind, type) else ()
    return {name, *(each.__name__ for each in kinds)} - {"Exception", "BaseException", "object"}


@cache
def error_factories() -> dict[str, set[str]]:
    """Return the errors that functions of the package return, for callers to raise, by the function's name."""
    factories: dict[str, set[str]] = {}
    for node in itertools.chain.from_iterable(ast.walk(ast.parse(text)) for text in sources().values()):
        match node:
            case ast.FunctionDef(name=name, returns=ast.Name(id=kind)) if kind in _LEAVES:
                factories.setdefault(name, set()).add(kind)
    return factories


@cache
def sources() -> dict[str, str]:
    """Return the text of each module, by its path in the package."""
    return {str(path.relative_to(_SOURCE)): path.read_text() for path in sorted(_SOURCE.rglob("*.py"))}


def raised(nodes: list[ast.stmt], caught: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the errors that statements raise by name, but for those that the same function catches."""
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name)) | ast.Name(id=name)) if name[0].isupper():
                if name not in _UNNAMED and caught.isdisjoint(ancestors(name)):
                    yield name
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))):
                yield from (kind for kind in error_factories().get(name, ()) if caught.isdisjoint(ancestors(kind)))
            case ast.With(items=items) if any("translate" in ast.unparse(item) for item in items):
                yield from (name for name in raised(node.body, caught) if hasattr(errors, name))
            case ast.Try():
                names = {
                    leaf.id
                    for handler in node.handlers
                    for leaf in ast.walk(handler.type or ast.Name("Exception"))
                    if isinstance(leaf, ast.Name)
                }
                yield from raised(node.body, caught | names)
                for handler in node.handlers:
                    yield from raised(handler.body, caught)
                yield from raised([*node.orelse, *node.finalbody], caught)
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from raised(_statements(child), caught)


def _statements(node: ast.AST) -> list[ast.stmt]:
    if isinstance(node, ast.stmt):
        return [node]
    return [statement for child in ast.iter_child_nodes(node) for statement in _statements(child)]


def functions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the public functions of a module, and the public methods of its public classes."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield from functions(node, f"{prefix}{node.name}.")
            else:
                yield f"{prefix}{node.name}", node


def lacking(text: str) -> dict[str, set[str]]:
    """Return the errors that the docstrings of a module's public functions don't name, by function."""
    missing: dict[str, set[str]] = {}
    for name, function in functions(ast.parse(text)):
        named = raises_names(function)
        lacks = {each for each in raised(function.body) if named.isdisjoint(ancestors(each))}
        if lacks:
            missing[name] = lacks
    return missing


def raises_names(function: ast.AST) -> set[str]:
    """Return the errors that a docstring's `Raises:` names."""
    docstring = ast.get_docstring(function) if isinstance(function, Function | ast.ClassDef) else ""
    section = _SECTION.search(docstring or "")
    return {each for names in _NAME.findall(section[1] if section else "") for each in names.split(", ")}


def test_raises_is_complete() -> None:
    checked = {module: lacking(text) for module, text in sources().items() if not module.startswith(_NO_DOCSTRINGS)}
    assert [
        f"{module}: {function} lacks {', '.join(sorted(names))}"
        for module, missing in checked.items()
        for function, names in missing.items()
    ] == []


def test_every_error_in_a_docstring_is_there() -> None:
    nodes = {module: list(ast.walk(ast.parse(text))) for module, text in sources().items()}
    there = {*vars(errors), *vars(builtins)}
    for node in itertools.chain.from_iterable(nodes.values()):
        match node:
            case ast.ClassDef(name=name) | ast.alias(name=name) | ast.Attribute(attr=name):
                there.add(name)
    stale = {f"{module}: {each}" for module, within in nodes.items() for node in within for each in raises_names(node)}
    assert sorted(name for name in stale if name.partition(": ")[2] not in there) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    raise ValueError('no')",
        "def f():\n    '''Do.\n\n    Raises:\n        KeyError: no.\n    '''\n    raise ValueError('no')",
        "class A:\n    async def f(self):\n        if self:\n            raise ValueError",
        "def f():\n    try:\n        g()\n    except OSError as error:\n        raise ValueError('no') from error",
        "def f():\n    with g():\n        for x in y:\n            raise ValueError('no')",
        "def f(x):\n    match x:\n        case 1:\n            raise ValueError('no')",
    ],
)
def test_what_is_not_named_is_seen(text: str) -> None:
    assert list(lacking(text).values()) == [{"ValueError"}]


def test_error_of_a_factory_is_seen() -> None:
    assert lacking("def f(self):\n    raise self._container.broken('no') from None") == {"f": {"BrokenMetadata"}}


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    '''Do.\n\n    Raises:\n        ValueError: no.\n    '''\n    raise ValueError('no')",
        "def f():\n    '''Do.\n\n    Raises:\n        CatalogError: no.\n    '''\n    raise CatalogConflict('no')",
        "def f():\n    '''Do.\n\n    Raises:\n        KeyError, ValueError: no.\n    '''\n    raise ValueError('no')",
        "def _f():\n    raise ValueError('no')",
        "class _A:\n    def f(self):\n        raise ValueError('no')",
        "def f():\n    def g():\n        raise ValueError('no')\n    return g",
        "def f():\n    try:\n        raise ValueError('no')\n    except ValueError:\n        pass",
        "def f(error):\n    raise error",
        "def f():\n    raise NotImplementedError",
    ],
)
def test_what_is_named_or_never_leaves_it_is_not(text: str) -> None:
    assert not lacking(text)
