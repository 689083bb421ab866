"""When the walk over a manifest is compiled."""

import functools

import pytest

from sterna.iceberg.avro import locate


def test_who_expects_much_compiles_for_the_first_of_it(monkeypatch: pytest.MonkeyPatch):
    @functools.cache
    def nothing_compiled() -> None: ...

    monkeypatch.setattr(locate, "compiled_walk", nothing_compiled)
    monkeypatch.setattr(locate, "interpreted_bytes", 0)
    locate.expect_bytes(locate.COMPILE_THRESHOLD_BYTES - 10)
    assert not locate.should_compile(1, 1)
    locate.expect_bytes(locate.COMPILE_THRESHOLD_BYTES)
    assert locate.should_compile(1, 1)
