"""Jobs of a fork server, for its tests: the file `job` in the folder says which."""

from __future__ import annotations

import os
import time
from pathlib import Path


def main(folder: Path) -> None:
    """Do the job of a folder."""
    match (folder / "job").read_text():
        case "environment":
            (folder / "result").write_text("\n".join(f"{name}={value}" for name, value in os.environ.items()))
        case "sleep":
            (folder / "pid").write_text(str(os.getpid()))
            time.sleep(600)
        case "killed":
            os.kill(os.getpid(), 9)
        case "crash":
            os.abort()
        case "memory":
            raise MemoryError
