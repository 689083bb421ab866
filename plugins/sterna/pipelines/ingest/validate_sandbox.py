"""A Parquet file with a large footer is looked at in a process of its own, with a limit of memory and of time.

A footer's few bytes may become two hundred times as many in memory, and seconds in which nothing else is answered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from threading import BoundedSemaphore

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, DropOverLimit, EngineError, printable

_PROCESS_SLOTS = BoundedSemaphore(2)


def check_in_subprocess(path: Path, limits: TenantLimits) -> int:
    """Return how many rows a Parquet file has, as `check_parquet` does.

    Raises:
        BadDrop: it isn't one.
        DropOverLimit: it is more than may be sent, or looking at it takes too much.
        EngineError: the process failed for another reason than the file.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    environment |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # the others reserve more than they use
    command = [sys.executable, "-c", _SCRIPT, str(path), limits.model_dump_json(), str(limits.footer_memory)]
    with _PROCESS_SLOTS:
        try:
            process = subprocess.run(
                command, env=environment, timeout=limits.footer_time, capture_output=True, check=False
            )
        except subprocess.TimeoutExpired:
            message = f"looking at the footer takes more than {limits.footer_time} s (limits.footer_time)"
            raise DropOverLimit(message) from None
    if process.returncode > 0 and b"MemoryError" not in process.stderr:
        lines = process.stderr.decode(errors="replace").strip().splitlines() or [str(process.returncode)]
        raise EngineError(f"the process that looks at a footer failed: {printable(lines[-1], 300)}")
    if process.returncode:
        raise DropOverLimit(
            f"the footer of the Parquet file can't be read with {limits.footer_memory} bytes of memory "
            "(limits.footer_memory)"
        )
    response = json.loads(process.stdout)
    if response["error"]:
        raise (DropOverLimit if response["over"] else BadDrop)(response["error"])
    return int(response["rows"])


_SCRIPT = """
import json, resource, sys
from pathlib import Path
import pyarrow.parquet
from sterna.errors import BadDrop, DropOverLimit
from sterna.pipelines.ingest.validate_parquet import check_footer
from sterna.config.sections.ingest import TenantLimits
memory, told = int(sys.argv[3]), {"rows": 0, "error": "", "over": False}
resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
try:
    told["rows"] = check_footer(Path(sys.argv[1]), TenantLimits.model_construct(**json.loads(sys.argv[2])))
except (BadDrop, DropOverLimit) as error:
    told |= {"error": error.message, "over": isinstance(error, DropOverLimit)}
print(json.dumps(told))
"""
