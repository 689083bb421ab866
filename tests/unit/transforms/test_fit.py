"""Whether a value that tells keys or partitions apart is the same one in the target's column.

The kind: Spark casts what is written, and says nothing. It falls under it that a scale is rounded, that a time becomes
its day, that a number becomes a text which is compared as a DOUBLE. What is refused loudly where it doesn't fit (a
BIGINT in an INT) loses nothing.
"""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from sterna.config.sections.transforms import Transform
from sterna.errors import ServicesError
from sterna.pipelines.transforms.target_schema import preserves_values, validate_key_types


def schema(kind: str) -> StructType:
    """Return columns of which one has a type by Spark's name in JSON; DDL would need a JVM."""
    fields = [
        {"name": name, "type": type, "nullable": True, "metadata": {}} for name, type in (("k", kind), ("v", "string"))
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


@pytest.mark.parametrize(
    ("given", "kept", "keeps"),
    [
        *((kind, kind, True) for kind in ("string", "date", "timestamp", "decimal(9,2)", "binary", "boolean")),
        ("integer", "long", True),
        ("long", "integer", True),
        ("date", "timestamp", True),
        ("date", "timestamp_ntz", True),
        ("decimal(9,2)", "decimal(12,4)", True),
        ("decimal(9,2)", "decimal(9,4)", True),
        ("decimal(12,4)", "decimal(12,2)", False),
        ("integer", "decimal(12,2)", True),
        ("integer", "decimal(9,2)", True),
        ("long", "double", False),
        ("long", "string", False),
        ("decimal(38,2)", "string", False),
        ("decimal(9,2)", "integer", False),
        ("date", "string", False),
        ("timestamp", "date", False),
        ("timestamp", "timestamp_ntz", False),
    ],
)
def test_a_type_keeps_values_or_is_refused(given: str, kept: str, keeps: bool) -> None:
    assert preserves_values(schema(given)["k"].dataType, schema(kept)["k"].dataType) is keeps
    for mode in ("merge(k)", "replace(k)", "append"):
        flow = Transform.model_validate({"name": "a", "from": "n.a", "into": "n.b", "mode": mode, "sql": "SELECT 1"})
        if keeps or mode == "append":
            validate_key_types(flow, schema(given), schema(kept))
            continue
        with pytest.raises(ServicesError, match=r"n\.b has k as"):
            validate_key_types(flow, schema(given), schema(kept))
