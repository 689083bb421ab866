"""Descriptions of a route's responses for OpenAPI, made of what the route really sends.

A response body is declared once: as a model that reads its fields from the objects of the pipelines, or, where a route
writes its JSON faster than a model does, as a `TypedDict`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import AliasPath, BaseModel, ConfigDict, Field
from starlette.requests import Request

from sterna.serving.http.errors import RequestError

Responses = dict[int | str, dict[str, Any]]
_ETAG = re.compile(r'"[^"]*"')
_REQUEST_ID = "5f1c0a2b9d3e4f60"


class ResponseBody(BaseModel):
    """A body in JSON, whose fields are declared with `body_field`."""

    # Numbers for fields of text: snapshot ids, of which JavaScript's numbers lose the last digits.
    model_config = ConfigDict(from_attributes=True, coerce_numbers_to_str=True)

    @classmethod
    def example(cls, **fields: Any) -> dict[str, Any]:
        """Return a body, of the fields' examples but for some."""
        return {name: declared.examples[0] for name, declared in cls.model_fields.items() if declared.examples} | fields


def body_field(example: Any, source: str = "") -> Any:
    """Return the declaration of a field.

    Args:
        source: the attribute with the value, dotted where it is another attribute's; default: the field's name.
    """
    return Field(examples=[example], validation_alias=AliasPath(*source.split(".")) if source else None)


def success(description: str, model: Any, example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a body in JSON.

    Args:
        model: the declaration of its fields; None: they differ by request.
    """
    content = {"application/json": {"example": example}}
    return {"description": description, "content": content, **({} if model is None else {"model": model})}


def failure(error: RequestError) -> dict[str, Any]:
    """Return the description of an error."""
    return success(error.error, None, error.body(_REQUEST_ID))


def failures(messages: Mapping[int, str], make: Callable[[int, str], RequestError] = RequestError) -> Responses:
    """Return the descriptions of errors.

    Args:
        messages: an example by status.
        make: returns the error with a status and a message.
    """
    return {status: failure(make(status, message)) for status, message in messages.items()}


def parse_etags(request: Request) -> frozenset[str]:
    """Return the ETags of `If-None-Match`."""
    # Weak ones count, too: a proxy that packs answers makes them so.
    return frozenset(tag for text in request.headers.getlist("if-none-match") for tag in _ETAG.findall(text))
