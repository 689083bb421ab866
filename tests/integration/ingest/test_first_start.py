"""The first start of `docs/ingest.md`, as it stands there: from two empty regions to a row on `main`.

Folder and port are the test's own, and the jars come from the cache. All else is copied from the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.servers.jars import ICEBERG_AWS, ICEBERG_SPARK, fetch_jars
from sterna.servers.process import free_port
from tests.support.command import STERNA

_ROOT = Path(__file__).parents[3]
_FETCHED = "https://repo1.maven.org/maven2/org/apache/iceberg/$jar/1.12.0/"
_SECONDS = 600.0


def section() -> str:
    page = (_ROOT / "docs" / "ingest.md").read_text()
    return page[page.index("## A first start") :].partition("\n## ")[0]


def blocks() -> list[str]:
    """What is typed, without the indent of the list."""
    snippets = re.findall(r"^   ```bash\n(.*?)^   ```$", section(), re.DOTALL | re.MULTILINE)
    return [re.sub("^   ", "", block, flags=re.MULTILINE) for block in snippets]


def test_the_page_names_the_jars_that_are_tested() -> None:
    text = section()
    assert len(blocks()) == 6 and text.count(_FETCHED) == 1
    for jar in (ICEBERG_SPARK, ICEBERG_AWS):
        assert jar.name in text and f"/{jar.revision}/" in text and f"-{jar.revision}.jar" in text


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    """Two empty regions, started as the page says."""
    folder = tmp_path / "lake"
    assert "python3 run.py demo --empty --work /tmp/lake\n" in section()
    command = [*STERNA, "demo", "--empty", "--work", str(folder)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + _SECONDS
        while "ready" not in (tmp_path / "log").read_text():
            assert process.poll() is None and time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.2)
        yield folder
    finally:
        process.terminate()
        process.wait(60)
    assert (folder / "variables.sh").stat().st_mode & 0o077 == 0


@pytest.mark.rare
def test_the_page_leads_to_a_row_on_main(lake: Path) -> None:
    jars = fetch_jars([ICEBERG_SPARK, ICEBERG_AWS])[0].parent
    typed = "".join(blocks()).replace("/tmp/lake", str(lake)).replace("8080", str(free_port()))
    script = f"set -eu\n{typed.replace(_FETCHED, f'file://{jars}/')}kill %1\n"
    environ = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR", "STERNA_CACHE") if name in os.environ}
    done = subprocess.run(
        ["bash", "-mc", script], cwd=_ROOT, env=environ, capture_output=True, text=True, timeout=_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "HTTP/1.1 201 Created" in done.stdout
    assert "1 batches settled; nothing waits" in done.stdout and '"state": "published"' in done.stdout
    assert "+ id: 1\n+ id: 2\n" in done.stdout
