"""Which of a region's own files are needed, however the metadata that names them spells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.maintenance.tables.referenced_files import ReferencedFiles
from tests.support.small_world import make_world, quiet, with_registry

AZURE = "abfss://c@acc.dfs.core.windows.net/w"
LISTED = {
    "wasbs://c@acc.blob.core.windows.net/w/t/x.parquet": AZURE,
    "wasb://c@acc.blob.core.windows.net/w/t/x.parquet": AZURE,
    "abfs://c@acc.dfs.core.windows.net/w/t/x.parquet": AZURE,
    "abfss://c@acc.dfs.core.windows.net/w//t/x.parquet": AZURE,
    "s3a://bucket/w/t/x.parquet": "s3://bucket/w",
    "s3n://bucket//w/t//x.parquet": "s3://bucket/w",
    "file:/lake/w/t/x.parquet": "file:///lake/w",
    "file:////lake/w/t/x.parquet": "file:///lake/w",
}


@pytest.mark.parametrize("named", LISTED)
def test_a_file_is_needed_in_whatever_spelling_it_is_named(tmp_path: Path, named: str) -> None:
    prefix = LISTED[named]
    kind = {"abfss": "azureblob", "s3": "s3", "file": "local"}[prefix.partition(":")[0]]
    world = make_world(tmp_path)
    more = {"id": "more", "prefix": prefix, "region": "us", "remote": {"type": kind}, "sweep": True}
    locations = world.registry.model_dump(mode="json")["locations"]
    needed = ReferencedFiles(with_registry(world, locations=[*locations, more]).context("us"), quiet)
    needed.add([named])
    listed = [f"{prefix}/t/x.parquet", f"{prefix}/t/other.parquet"]
    assert needed.files.contains(listed).to_pylist() == [True, False]
