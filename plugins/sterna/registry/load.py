"""Reading the registry's text: YAML or JSON, with errors that name file, line and field."""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import ValidationError

from sterna.errors import RegistryError
from sterna.registry.model import Registry

Location = tuple[str | int, ...]


def parse_registry(text: str, name: str) -> Registry:
    """Read a registry from YAML or JSON text.

    Args:
        text: the file's content.
        name: the file's name, for errors.

    Returns:
        The registry.

    Raises:
        RegistryError: with file, line, field and what was expected, for every fault found.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        # Not chained: the parser's error repeats the line, which may hold a secret.
        raise RegistryError(f"{name}:{_yaml_problem(error)}") from None
    if not isinstance(content, dict):
        raise RegistryError(f"{name}:1: expected a mapping with regions, locations and policies")
    lines: dict[Location, int] = {}
    _lines(node, (), lines)
    try:
        return Registry.model_validate(content)
    except ValidationError as error:
        # Neither pydantic's text nor its context may be chained: both repeat the input, which may be a secret.
        raise RegistryError(
            "\n".join(_problem(name, lines, item) for item in error.errors(include_input=False, include_url=False))
        ) from None


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return (
        f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', 'not YAML')}"
        if mark
        else str(error)
    )


def _lines(node: yaml.Node | None, path: Location, lines: dict[Location, int]) -> None:
    if node is None:
        return
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _lines(value, (*path, key.value), lines)
            lines[(*path, key.value)] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _lines(value, (*path, index), lines)


def _problem(name: str, lines: dict[Location, int], item: Any) -> str:
    path: Location = tuple(item["loc"])
    known = path
    while known and known not in lines:
        known = known[:-1]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".") or "registry"
    return f"{name}:{lines.get(known, 1)}: {field}: {item['msg'].removeprefix('Value error, ')}"
