"""Settings that people write, as YAML or JSON: strict models, and errors that name file, line and field.

The registry and the services file are both read this way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from sterna.errors import SternaError

FieldPath = tuple[str | int, ...]
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhdw])")


def duration(text: str) -> int | None:
    """Return the seconds of a duration such as `7d` (s, m, h, d, w), None where it is none."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _UNITS[found[2]] if found else None


class StrictModel(BaseModel):
    """What such a file is made of: frozen, and a setting that nobody knows is a fault."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=StrictModel)


def parse_strictly(
    text: str,
    name: str,
    kind: type[Model],
    error: type[SternaError],
    *,
    unique: bool = False,
    context: Mapping[str, Any] | None = None,
) -> Model:
    """Read a model from YAML or JSON text; text without content is an empty mapping.

    Args:
        text: the file's content.
        name: the file's name, for errors.
        kind: the model of the whole file.
        error: what is raised.
        unique: refuse a key that stands twice in a mapping; else the last one counts.
        context: what the model's validators are given.

    Returns:
        The model.

    Raises:
        SternaError: of the class `error`, with file, line, field and what was expected, for every fault found.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        content = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, RecursionError) as fault:
        # Not chained: the parser's error repeats the line, which may hold a secret.
        raise error(f"{name}:{_yaml_problem(text, fault)}") from None
    if not isinstance(content, dict | None):
        raise error(f"{name}:1: expected a mapping with {', '.join(kind.model_fields)}")
    problems = [(line, f"{_shown(key)}: stands twice") for line, key in loader.repeated if unique]
    try:
        model = kind.model_validate(content or {}, context=context)
    except ValidationError as fault:
        # Neither pydantic's text nor its context may be chained: both repeat the input, which may be a secret.
        problems += [_problem(node, kind, item) for item in fault.errors(include_input=False, include_url=False)]
    if problems:
        raise error("\n".join(f"{name}:{line}: {problem}" for line, problem in sorted(problems)))
    return model


class _Loader(yaml.SafeLoader):
    """Tells which keys stand twice, and the line of a value that is not what its look or tag says: `2024-99-99`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[tuple[int, str]] = []

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        self.repeated += _repeated(node)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(None, None, f"this is no {kind}", node.start_mark) from None


def _repeated(node: yaml.MappingNode) -> Iterator[tuple[int, str]]:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen:
                yield key.start_mark.line + 1, key.value
            seen.add((key.tag, key.value))


def _yaml_problem(text: str, fault: yaml.YAMLError | RecursionError) -> str:
    if isinstance(fault, yaml.MarkedYAMLError) and fault.problem_mark:
        return f"{fault.problem_mark.line + 1}: column {fault.problem_mark.column + 1}: {fault.problem or 'not YAML'}"
    if isinstance(fault, yaml.reader.ReaderError):
        line = text.count("\n", 0, fault.position) + 1
        return f"{line}: unacceptable character #x{ord(text[fault.position]):04x}"
    return "1: nested too deeply" if isinstance(fault, RecursionError) else "1: not YAML"


def _problem(node: yaml.Node | None, kind: type[StrictModel], item: Any) -> tuple[int, str]:
    path: FieldPath = tuple(item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden" and len(path) == 1:
        message = f"no such setting; there are {', '.join(kind.model_fields)}"
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return _line(node, path), f"{_shown(field or kind.__name__.lower())}: {message}"


def _line(node: yaml.Node | None, path: FieldPath) -> int:
    """Return the line where a field stands, or what encloses it, as far as the file has it."""
    line = 1 if node is None else node.start_mark.line + 1
    for part in path:
        key: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            key, node = next((pair for pair in reversed(node.value) if pair[0].value == str(part)), (None, None))
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            key = node = node.value[part]
        if key is None:
            break
        line = key.start_mark.line + 1
    return line


def _shown(text: str) -> str:
    """Return a name on one line, whatever letters somebody gave it."""
    return text if text.isprintable() else ascii(text)[1:-1]
