"""What updates of a table and of a view have in common: a draft of its metadata, and actions applied in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sterna.errors import BadUpdate, StaleBase
from sterna.serving.rest_catalog import json_fields as read

LAST_ADDED = -1
"""The id that means what the same commit added last."""
_OLDER_NAMES = {"updated": "updates", "removed": "removals"}


@dataclass
class MetadataDraft:
    """The metadata of a table or view that updates are applied to.

    Args:
        document: its JSON; its lists and maps are this draft's own, what is in them is replaced.
        now_ms: when the updates are applied.
        changed: whether an update changed anything.
    """

    document: dict[str, Any]
    now_ms: int
    changed: bool = False

    def put(self, name: str, content: object) -> None:
        """Set a field, which is a change.

        Args:
            name: the field's.
            content: its JSON.
        """
        self.document[name] = content
        self.changed = True


DraftT = TypeVar("DraftT", bound=MetadataDraft)


def apply_in_order(
    draft: DraftT,
    updates: Sequence[Mapping[str, Any]],
    actions: Mapping[str, Callable[[DraftT, read.Json], None]],
    kind: str,
) -> None:
    """Apply updates to a draft, one after the other.

    Args:
        draft: of a table or view.
        updates: the client's.
        actions: what applies each.
        kind: `table` or `view`, for errors.

    Raises:
        BadUpdate: one is malformed, unknown or doesn't fit; the message names its number and action.
        StaleBase: a snapshot was made for a version of the table that others have left behind.
    """
    for number, content in enumerate(read.as_elements(updates, "updates"), 1):
        try:
            update = normalized_update(read.as_object(content, "it"))
            action = read.field(update, "action", read.as_text)
        except BadUpdate as error:
            raise BadUpdate(f"update {number}: {error.message}") from None
        if action not in actions:
            raise BadUpdate(f"update {number}: a {kind} has no update action {action}")
        try:
            actions[action](draft, update)
        except (BadUpdate, StaleBase) as error:
            raise type(error)(f"update {number}, {action}: {error.message}") from None


def normalized_update(update: read.Json) -> read.Json:
    """Return an update in the one spelling that it is checked and applied in.

    Its action is in small letters, as Java reads it; what older clients call `updated` and `removed` has the
    specification's name, which counts where both are there.

    Args:
        update: the client's.
    """
    names = {older: name for older, name in _OLDER_NAMES.items() if older in update and name not in update}
    return read.with_small_letters({names.get(name, name): content for name, content in update.items()}, "action")


def set_properties(draft: MetadataDraft, update: read.Json) -> None:
    """Set properties.

    Args:
        draft: of the table or view.
        update: the client's.
    """
    properties = read.field(update, "updates", read.text_map)
    if properties:
        draft.put("properties", {**draft.document["properties"], **properties})


def remove_properties(draft: MetadataDraft, update: read.Json) -> None:
    """Remove properties. Arguments as `set_properties`."""
    names = set(read.array_field(update, "removals", read.as_text))
    if names:
        kept = {name: text for name, text in draft.document["properties"].items() if name not in names}
        draft.put("properties", kept)


def stripped_location(location: str) -> str:
    """Return a location without the slashes at its end. Source: Java's `LocationUtil.stripTrailingSlash`.

    Args:
        location: the client's.

    Raises:
        BadUpdate: it is empty.
    """
    if not location:
        raise BadUpdate("the location is empty")
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location
