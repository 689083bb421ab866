"""The keys that the body of a DeleteObjects request names.

The body is read by a grammar of its own, smaller than XML: what any parser could read in another way isn't taken.

Source: Amazon S3 API Reference, DeleteObjects.
"""

from __future__ import annotations

import re
from typing import Final

from sterna.errors import Forbidden

_MAX_KEYS: Final = 1000  # as S3 has it
_NAMED_REFERENCES: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_REFERENCE = rf"&(?:{'|'.join(_NAMED_REFERENCES)}|#[0-9]{{1,7}}|#x[0-9A-Fa-f]{{1,6}});"
_FIRST_VISIBLE: Final = 0x20
# Parsers take the first for other characters, and XML has none of the others.
_UNSAFE_CODES: Final = (range(0x7F, 0xA0), range(0xD800, 0xE000), range(0xFFFE, 0x10000))
_MAX_CODE: Final = 0x10FFFF
_KEY = rf"(?:[^<>&\x00-\x1f\x7f-\x9f\ufffe\uffff]|{_REFERENCE})+"
_SPACE = r"[ \t\r\n]*"
_OBJECT = re.compile(rf"<Object>{_SPACE}<Key>({_KEY})</Key>{_SPACE}</Object>{_SPACE}")
_START = re.compile(
    rf"(?:<\?xml version=[\"']1\.0[\"'](?: encoding=[\"'](?:UTF|utf)-8[\"'])?\?>{_SPACE})?"
    rf"<Delete(?: xmlns=[\"']http://s3\.amazonaws\.com/doc/2006-03-01/[\"'])?>{_SPACE}"
)
_QUIET = re.compile(rf"<Quiet>(?:true|false)</Quiet>{_SPACE}")
_END = re.compile(rf"</Delete>{_SPACE}")


def read_deleted_keys(body: bytes | None) -> list[str]:
    """Return the keys that a request deletes.

    Args:
        body: of the request; None: the client doesn't show it.

    Raises:
        Forbidden: it isn't shown, or is anything but a list of keys.
    """
    if body is None:
        raise Forbidden("a request that deletes several objects is signed with its body alone")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise _unreadable() from None
    position = _skip(_START, text, 0, required=True)
    position = _skip(_QUIET, text, position)
    keys = []
    while match := _OBJECT.match(text, position):
        keys.append(re.sub(_REFERENCE, _referenced_character, match[1]))
        position = match.end()
        if len(keys) > _MAX_KEYS:
            raise Forbidden(f"a request deletes {_MAX_KEYS:,} objects at most")
    position = _skip(_QUIET, text, position)
    if not keys or _END.fullmatch(text, position) is None:
        raise _unreadable()
    return keys


def _referenced_character(reference: re.Match[str]) -> str:
    """Return the character that a reference means."""
    name = reference[0][1:-1]
    if not name.startswith("#"):
        return _NAMED_REFERENCES[name]
    code = int(name[2:], 16) if name[1] == "x" else int(name[1:])
    if not _FIRST_VISIBLE <= code <= _MAX_CODE or any(code in codes for codes in _UNSAFE_CODES):
        raise _unreadable()
    return chr(code)


def _skip(pattern: re.Pattern[str], text: str, position: int, *, required: bool = False) -> int:
    match = pattern.match(text, position)
    if match is None and required:
        raise _unreadable()
    return match.end() if match is not None else position


def _unreadable() -> Forbidden:
    return Forbidden("the body of a request that deletes objects has to be a plain list of keys")
