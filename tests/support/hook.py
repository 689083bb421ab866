"""A webhook's receiver as a process of its own: `python -m tests.support.hook PORT FOLDER`.

Each body that is posted to `/NAME` and taken is a line of FOLDER/NAME.lines before it is answered. What is taken stands
in FOLDER/NAME.rules: the largest body, and whether anything is at all.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        name = self.path.strip("/")
        rules = json.loads((self.folder / f"{name}.rules").read_text())
        status = 403 if rules["denied"] else 413 if len(body) > rules["most"] else 204
        if status == 204:
            with (self.folder / f"{name}.lines").open("ab") as file:
                file.write(body + b"\n")
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def main(port: str, folder: str) -> None:
    """Listen until killed."""
    _Handler.folder = Path(folder)
    with ThreadingHTTPServer(("127.0.0.1", int(port)), _Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
