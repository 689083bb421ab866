"""Settings that people write, as YAML or JSON: strict models, and errors that name file, line and field.

The registry and the services file are both read this way.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from sterna.config.renamed import find_renamed
from sterna.errors import SternaError

FieldPath = tuple[str | int, ...]
_MERGE = "tag:yaml.org,2002:merge"
_VALUE = "tag:yaml.org,2002:value"
# Hints for parser messages without one.
_CLEARER_MESSAGES = {
    "second occurrence": "this anchor appears twice: give it another name",
    "found unhashable key": "a key has to be a single value, not a list or mapping",
    "but found another document": "a second document begins: keep one",
}


@dataclass(frozen=True)
class Fault:
    """What is wrong with one field.

    Args:
        field: its path, from the model whose validator found it.
        message: what is wrong, and what to do; never its value where that may be a secret.
    """

    field: FieldPath
    message: str


class Faults(ValueError):
    """Raised by a model's validator for fields within it: each is reported with its own line."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = tuple(faults)


class StrictModel(BaseModel):
    """The base of such a file's models: frozen, and an unknown setting is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=StrictModel)


def case_colliding_credentials(model: BaseModel) -> Iterator[Fault]:
    """Yield the credential ids that differ by the case of their letters alone: outside Airflow they are one variable,
    and both would get what it holds.
    """
    first_by_variable: dict[str, str] = {}
    for field, id in credential_fields(model):
        earlier = first_by_variable.setdefault(id.upper(), id)
        if earlier != id:
            yield Fault(field, f"{id!r} and {earlier!r} are one variable, AIRFLOW_CONN_{id.upper()}: rename one")


def credential_fields(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, str]]:
    """Yield each credential's id that settings name, with the path of the field.

    Args:
        value: a model, or a part of one.
        path: of that part.
    """
    if isinstance(value, BaseModel):
        for name, item in value:
            if name.endswith("credential_id") and isinstance(item, str):
                yield (*path, name), item
            else:
                yield from credential_fields(item, (*path, name))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from credential_fields(item, (*path, name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from credential_fields(item, (*path, number))


def parse_model(
    text: str,
    name: str,
    kind: type[Model],
    error: type[SternaError],
    *,
    renamed: Mapping[str, str] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Model:
    """Read a model from YAML or JSON text; text without content is an empty mapping.

    A mapping has each key once, at any depth, and what `<<` merges counts as written there: of duplicate keys, none
    silently wins.

    Args:
        text: the file's content.
        name: the file's name, for errors.
        kind: the model of the whole file.
        error: the class to raise.
        renamed: settings that had another name, as `config.renamed` has them: the error names the new one.
        context: what the model's validators are given.

    Returns:
        The model.

    Raises:
        SternaError: of the class `error`, with file, line, field and what was expected, for every fault found.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        problems = loader.find_duplicates(node)
        # Duplicate keys of merges are not constructed: merges of merges would double without an end.
        content = None if node is None or loader.has_merge_conflicts else loader.construct_document(node)
    except (yaml.YAMLError, RecursionError) as fault:
        # Not chained: the parser's error repeats the line, which may hold a secret.
        raise error(f"{name}:{_yaml_problem(text, fault)}") from None
    if loader.has_merge_conflicts:
        raise error(_format_problems(name, problems))
    if not isinstance(content, dict | None):
        raise error(f"{name}:1: expected a mapping with {', '.join(kind.model_fields)}")
    try:
        model = kind.model_validate(content or {}, context=context)
    except ValidationError as fault:
        # Neither pydantic's text nor its context may be chained: both repeat the input, which may be a secret.
        problem_groups = (
            _field_problems(node, kind, item, renamed or {})
            for item in fault.errors(include_input=False, include_url=False)
        )
        problems += [problem for group in problem_groups for problem in group]
    if problems:
        raise error(_format_problems(name, problems))
    return model


@dataclass(frozen=True)
class _Key:
    """A key of a mapping.

    Args:
        text: as it is written.
        equivalents: whatever it is equal to once it is read: `1`, `0x1`, `"1"` and `true` are one, or become it.
        is_merge: it is the merge key `<<`.
    """

    text: str
    equivalents: frozenset[Hashable]
    line: int
    is_merge: bool


class _Loader(yaml.SafeLoader):
    """Finds duplicate keys, and the line of a value that doesn't fit its implicit or explicit tag: `2024-99-99`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._keys: dict[yaml.Node, dict[Hashable, _Key]] = {}
        self._visited: set[yaml.Node] = set()
        self._duplicates: list[tuple[int, str]] = []
        self.has_merge_conflicts = False

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(None, None, f"this is no {kind}", node.start_mark) from None

    def find_duplicates(self, node: yaml.Node | None) -> list[tuple[int, str]]:
        """Return line and problem of each duplicate key below a node."""
        self._visit(node, ())
        return self._duplicates

    def _visit(self, node: yaml.Node | None, path: FieldPath) -> None:
        if node in self._visited:
            return
        if isinstance(node, yaml.SequenceNode):
            self._visited.add(node)
            for number, item in enumerate(node.value):
                self._visit(item, (*path, number))
        elif isinstance(node, yaml.MappingNode):
            self._visited.add(node)
            self._collect_keys(node, path)
            for key, value in node.value:
                self._visit(value, (*path, key.value) if isinstance(key, yaml.ScalarNode) else path)

    def _collect_keys(self, node: yaml.MappingNode, path: FieldPath) -> dict[Hashable, _Key]:
        """Return the keys of a mapping by all that they are equal to, those that it merges among them."""
        if node in self._keys:
            return self._keys[node]
        keys: dict[Hashable, _Key] = {}
        self._keys[node] = keys  # a mapping may merge itself
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # refused when it is constructed
            own = _Key(key.value, self._equivalents(key), key.start_mark.line + 1, key.tag == _MERGE)
            self._add_key(keys, own, own.line, path)
            for part in _merged_mappings(key, value):
                merged_keys = dict.fromkeys(self._collect_keys(part, (*path, key.value)).values())
                for merged_key in merged_keys:
                    self.has_merge_conflicts |= not merged_key.is_merge and self._add_key(
                        keys, merged_key, own.line, path
                    )
        return keys

    def _add_key(self, keys: dict[Hashable, _Key], key: _Key, line: int, path: FieldPath) -> bool:
        """Add a key, and return whether it was there."""
        first = next((keys[equivalent] for equivalent in key.equivalents if equivalent in keys), None)
        if first is None:
            keys.update(dict.fromkeys(key.equivalents, key))
            return False
        field = _format_path((*path, key.text))
        self._duplicates.append((line, f"{field}: appears twice, first in line {first.line}: keep one"))
        return True

    def _equivalents(self, key: yaml.ScalarNode) -> frozenset[Hashable]:
        value = key.value if key.tag in (_MERGE, _VALUE) else self.construct_object(key)
        try:
            return frozenset({key.value, value, str(value)})
        except (TypeError, ValueError):  # nothing that a key may be, or a number of thousands of digits
            return frozenset({key.value})


def _merged_mappings(key: yaml.ScalarNode, value: yaml.Node) -> list[yaml.MappingNode]:
    """Return the mappings that `<<` merges."""
    parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
    return [part for part in parts if isinstance(part, yaml.MappingNode)] if key.tag == _MERGE else []


def _format_problems(name: str, problems: list[tuple[int, str]]) -> str:
    return "\n".join(f"{name}:{line}: {problem}" for line, problem in sorted(problems))


def _yaml_problem(text: str, fault: yaml.YAMLError | RecursionError) -> str:
    if isinstance(fault, yaml.MarkedYAMLError) and fault.problem_mark:
        problem = fault.problem or "not YAML"
        return (
            f"{fault.problem_mark.line + 1}: column {fault.problem_mark.column + 1}: "
            f"{_CLEARER_MESSAGES.get(problem, problem)}"
        )
    if isinstance(fault, yaml.reader.ReaderError):
        line = text.count("\n", 0, fault.position) + 1
        return f"{line}: unacceptable character #x{ord(text[fault.position]):04x}"
    return "1: nested too deeply" if isinstance(fault, RecursionError) else "1: not YAML"


def _field_problems(
    node: yaml.Node | None, kind: type[StrictModel], error: Any, renamed: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    path: FieldPath = tuple(error["loc"])
    path = path[:-1] if path[-1:] == ("[key]",) else path  # what a mapping's key is refused for
    message = _message(error)
    if error["type"] == "extra_forbidden" and len(path) == 1:
        message = f"no such setting; there are {', '.join(kind.model_fields)}"
    if error["type"] == "extra_forbidden" and (new_name := find_renamed(path, renamed)):
        message = f"no such setting; did you mean {new_name}?"
    inner_error = error.get("ctx", {}).get("error")
    for fault in inner_error.faults if isinstance(inner_error, Faults) else (Fault((), message),):
        field = (*path, *fault.field)
        yield _line(node, field), f"{_format_path(field) or kind.__name__.lower()}: {fault.message}"


_MESSAGES = {
    "missing": "is missing, and has to be there",
    "extra_forbidden": "no such setting here",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "mapping_type"), "expected a mapping"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "expected a list"),
    "invalid_key": "a name has to be a text: a number, a date or a yes needs quotation marks",
    "string_type": "expected a text: a number, a date or a yes needs quotation marks",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "expected an integer"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "expected a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "expected true or false"),
    **dict.fromkeys(("literal_error", "enum"), "expected {expected}"),
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "too_short": "expected at least {min_length} item(s)",
    "too_long": "expected at most {max_length} items",
    "string_too_short": "expected a text of at least {min_length} letter(s)",
    "string_too_long": "expected a text of at most {max_length} letters",
    "string_pattern_mismatch": "expected a text of the pattern {pattern}",
}
"""Messages by pydantic's type of an error: its own messages name classes of Python's and of sterna's."""


def _message(error: Any) -> str:
    text = _MESSAGES.get(error["type"])
    return error["msg"].removeprefix("Value error, ") if text is None else text.format(**error.get("ctx", {}))


def _format_path(path: FieldPath) -> str:
    """Return a field's path as messages name it, on one line whatever characters it has."""
    return _printable_name(
        "".join(f"[{_part_text(part)}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    )


def _line(node: yaml.Node | None, path: FieldPath) -> int:
    """Return the line of a field, or of what encloses it, as far as the file has it."""
    line = 1 if node is None else node.start_mark.line + 1
    for part in path:
        key: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            key, node = next((pair for pair in reversed(node.value) if pair[0].value == _part_text(part)), (None, None))
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            key = node = node.value[part]
        if key is None:
            break
        line = key.start_mark.line + 1
    return line


def _part_text(part: str | int) -> str:
    try:
        return str(part)
    except ValueError:  # a number of thousands of digits
        return hex(part) if isinstance(part, int) else part


def _printable_name(text: str) -> str:
    """Return a name on one line, whatever characters it has."""
    return text if text.isprintable() else ascii(text)[1:-1]
