"""What files are missing or of another size is the same whether the claims stayed in memory or not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.replication.verify.findings import Findings
from sterna.replication.verify.sizes import ExpectedFiles
from sterna.storage.spill.sorted_rows import ExternalSorter, SorterLimits

NAMES = st.sampled_from(["s3://b/a", "s3://b/b", "s3://b/ä", "s3://b/\uffff", "s3://b/\U0001f600"])
MANIFESTS = st.lists(st.lists(st.tuples(NAMES, st.integers(1, 3)), max_size=5), max_size=8)
THERE = st.dictionaries(NAMES, st.integers(1, 3))


class Store:
    def __init__(self, there: dict[str, int]) -> None:
        self.there = there
        self.asked: list[str] = []

    def sizes(self, uris: list[str]) -> dict[str, int | None]:
        self.asked += uris
        return {uri: self.there.get(uri) for uri in uris}


def checked(
    manifests: list[list[tuple[str, int]]], there: dict[str, int], limits: SorterLimits = ExternalSorter.limits
) -> tuple[Any, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExternalSorter, "limits", limits)
        claims, findings, store = ExpectedFiles(), Findings("t"), Store(there)
        for number, files in enumerate(manifests):
            uris = pa.chunked_array([[uri for uri, _ in files]], pa.string())
            claims.add(f"m{number}", uris, pa.chunked_array([[size for _, size in files]], pa.int64()))
        claims.check(store, findings)  # type: ignore[arg-type]
        return findings, store.asked, list(claims.uris())


@given(manifests=MANIFESTS, there=THERE)
def test_claims_on_disk_are_those_in_memory(manifests: list, there: dict[str, int]) -> None:
    in_memory = checked(manifests, there)
    for part in (1, 3):
        assert checked(manifests, there, SorterLimits(0, 1, 2, part)) == in_memory
    findings, asked, listed = in_memory
    assert listed == asked == sorted({uri for files in manifests for uri, _ in files})
    assert findings.files == len(asked)


def test_sizes_that_differ_between_manifests_are_one_finding() -> None:
    manifests = [[("s3://b/a", 1), ("s3://b/b", 2)], [("s3://b/a", 3)], [("s3://b/a", 2)]]
    findings, _, _ = checked(manifests, {"s3://b/a": 2, "s3://b/b": 2}, SorterLimits(0, 1, 2, 1))
    assert [(finding.file, finding.message) for finding in findings.kept] == [
        ("s3://b/a", "2 bytes, m0 and others say from 1 to 3")
    ]
