"""Logs as JSON, a line each, without secrets: no header and no query is ever logged."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

from sterna.errors import printable, printable_lines

# What looks like a token, should a library put one into a message.
_TOKEN = re.compile(r"(?i)eyJ[\w-]+\.[\w-]+\.[\w-]*|(bearer|ticket=|token=)\s*[^\s&\"']+")
FIELDS = "fields"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what the caller adds."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(_redact(record.getMessage())),
        }
        document |= {name: _redact_field(value) for name, value in getattr(record, FIELDS, {}).items()}
        if record.exc_info:
            document["traceback"] = printable_lines(_redact(self.formatException(record.exc_info)))
        return json.dumps(document, ensure_ascii=False)


def configure_logging(level: int = logging.INFO) -> None:
    """Let this process log JSON to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("sterna", "uvicorn.error"):
        logging.getLogger(name).setLevel(level)


def _redact(text: str) -> str:
    return _TOKEN.sub("***", text)


def _redact_field(value: Any) -> Any:
    return printable(_redact(value)) if isinstance(value, str) else value
