"""When the walk over a manifest is compiled."""

import functools

import pytest

from sterna.iceberg.avro import locate


def test_who_expects_much_compiles_for_the_first_of_it(monkeypatch: pytest.MonkeyPatch):
    @functools.cache
    def nothing_compiled() -> None: ...

    monkeypatch.setattr(locate, "compiled_walk", nothing_compiled)
    monkeypatch.setattr(locate, "plain_bytes", 0)
    locate.expect(locate.COMPILE_FROM_BYTES - 10)
    assert not locate.compiling_pays(1, 1)
    locate.expect(locate.COMPILE_FROM_BYTES)
    assert locate.compiling_pays(1, 1)
