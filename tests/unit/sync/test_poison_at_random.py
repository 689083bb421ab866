"""Three tables, one poisoned at random: whole syncs, and what `test_poison.py` says of each.

A few in each run. For more: python3 run.py test tests/unit/sync/test_poison_at_random.py --poisons 10000
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.iceberg.delete_files import FORMATS, damaged, write_rows
from tests.unit.iceberg.test_fuzz import raw, text
from tests.unit.iceberg.test_puffin import file_of, footer
from tests.unit.sync.poison import (
    GONE,
    Sick,
    avro_with,
    data_file,
    full,
    in_list,
    in_manifest,
    put,
    setting,
    with_deletes,
    with_vectors,
)

ODD_TEXT = st.text(st.characters(codec=None), max_size=40)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False),
        ODD_TEXT,
        ODD_TEXT.map(lambda name: f"s3://nowhere/{name}"),
        st.sampled_from(["", "../" * 50, "x" * 100_000, "s3://", "file:///", "file:///../x"]),
    ),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(ODD_TEXT, some, max_size=3),
    max_leaves=6,
)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, 1, 2**62, 2**63 - 1])
SEEDS = st.integers(0, 2**48)
LIST_NUMBERS = ("manifest_length", "content")
MANIFEST_NUMBERS = ("data_file/file_size_in_bytes", "data_file/record_count")
DAMAGED = ("list", "manifest", *FORMATS, "puffin")


def paths(document: Any, so_far: str = "") -> list[str]:
    """Return where each part of a document stands."""
    fields = document if isinstance(document, dict) else dict(enumerate(document if isinstance(document, list) else ()))
    items = fields.items()
    members = [(f"{so_far}/{key}".lstrip("/"), value) for key, value in items]
    return [path for path, _ in members] + [path for at, value in members for path in paths(value, at)]


@st.composite
def poisons(draw: st.DrawFn, sick: Sick) -> bytes:
    """Return a metadata.json: something in it, or in a file that it reaches, is wrong."""
    kind = draw(st.sampled_from(["value", "text", "number", "name", "damage"]))
    clean = full(sick.document)
    if kind == "value":
        put(clean, draw(st.sampled_from(paths(clean))), draw(VALUES | st.just(GONE)))
        return json.dumps(clean).encode()
    rng = random.Random(draw(SEEDS))
    if kind == "text":
        return text(rng, json.dumps(clean).encode())
    if kind == "number":
        listed = draw(st.booleans())
        fields = LIST_NUMBERS if listed else MANIFEST_NUMBERS
        return (in_list if listed else in_manifest)(sick, setting(draw(st.sampled_from(fields)), draw(LONGS)))
    if kind == "name":
        name = draw(ODD_TEXT).encode(errors="replace").decode()
        base = draw(st.sampled_from([sick.document["location"], "s3://nowhere", ""]))
        poison, field = draw(st.sampled_from([(in_list, "manifest_path"), (in_manifest, "data_file/file_path")]))
        return poison(sick, setting(field, f"{base}/{name}"))
    return with_damage(sick, draw(st.sampled_from(DAMAGED)), rng)


def with_damage(sick: Sick, what: str, rng: random.Random) -> bytes:
    """Damage the bytes of a file that the table reaches."""
    if what == "puffin":
        return with_vectors(sick, damaged(file_of(footer(data_file(sick))), rng))
    if what in FORMATS:
        return with_deletes(sick, damaged(write_rows(what, [(data_file(sick), 0, None)] * 20), rng), what)
    if what == "manifest":

        def point(record: dict[str, Any]) -> None:
            good = Path(record["manifest_path"].removeprefix("file://")).read_bytes()
            data = raw(rng, good)
            record["manifest_path"], record["manifest_length"] = sick.write(data, "avro"), len(data)

        return in_list(sick, point)
    document = sick.document
    good, _ = avro_with(sick, document["snapshots"][0]["manifest-list"], lambda record: None)
    data = raw(rng, Path(good.removeprefix("file://")).read_bytes())
    document["snapshots"][0]["manifest-list"] = sick.write(data, "avro")
    return json.dumps(document).encode()


def test_at_random(sick: Sick, request: pytest.FixtureRequest) -> None:
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]

    @settings(max_examples=request.config.getoption("--poisons"), deadline=None, suppress_health_check=quiet)
    @given(poisons(sick))
    def whole_sync(data: bytes) -> None:
        sick.check(data, held=False)

    whole_sync()
