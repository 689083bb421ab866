"""Metadata of an origin that can't be used is read from verbatim copies, by what asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.config.verbatim_copies import regions_with_copies
from sterna.errors import CredentialError, ObjectMissing, SternaError, StoreDenied, StoreUnreachable
from sterna.replication.execution.work_items import worker_objects
from sterna.storage.read_cache import cache_uri
from tests.support.small_world import World, priced, refusing, run, with_third_region
from tests.support.verbatim import keeping


@pytest.fixture
def kept(world: World) -> World:
    """A table of us, and a copy of all its files in eu."""
    world = keeping(with_third_region(world), "eu")
    world.commit(a=world.write("a"))
    run(world, "eu")
    return world


def manifest_list(world: World, folder: str) -> Path:
    (path,) = (world.folder / folder).rglob("snap-*.avro")
    return path


@pytest.mark.parametrize("error", [StoreUnreachable, StoreDenied, CredentialError])
def test_a_copy_is_read_while_the_origin_can_not_be_used(kept: World, error: type[SternaError]) -> None:
    objects, original = kept.context("ap").objects, manifest_list(kept, "us/lake")
    uri = f"file://{original}"
    with refusing(f"file://{kept.folder}/us/", error):
        assert objects.with_verbatim_copies().read(uri) == original.read_bytes()
        assert objects.with_verbatim_copies().with_read_cache("").read(uri) == original.read_bytes()
        for others in (objects, objects.with_read_cache("")):
            with pytest.raises(error):
                others.read(uri)
        with pytest.raises(error, match="says no"):
            objects.with_verbatim_copies().read(uri.replace("snap-", "nap-"))


def test_a_silent_origin_is_asked_once_and_its_files_without_copies_not_again(kept: World) -> None:
    objects, original = kept.context("ap").objects.with_verbatim_copies(), manifest_list(kept, "us/lake")
    uri = f"file://{original}"
    with refusing(f"file://{kept.folder}/us/", StoreUnreachable) as asked:
        assert [objects.read(uri) for _ in range(3)] == [original.read_bytes()] * 3
        with pytest.raises(StoreUnreachable, match="nap-"):
            objects.read(uri.replace("snap-", "nap-"))
        assert asked == [uri]
    manifest_list(kept, "eu/replica/_sterna/verbatim").unlink()
    objects.reset_circuit_breakers()
    assert objects.read(uri) == original.read_bytes()


def test_what_was_read_of_a_copy_is_not_kept_as_the_original(kept: World) -> None:
    original, cache = manifest_list(kept, "us/lake"), f"file://{kept.folder}/ap/replica/_sterna/cache"
    objects = kept.context("ap").objects.with_verbatim_copies().with_read_cache(cache)
    uri = f"file://{original}"
    with refusing(f"file://{kept.folder}/us/", StoreUnreachable):
        objects.read(uri)
        assert list(objects.list(cache)) == []
    objects.reset_circuit_breakers()
    objects.read(uri)
    assert [kept_uri for kept_uri, _, _ in objects.list(cache)] == [cache_uri(cache, uri)]


def test_workers_read_copies_too(kept: World) -> None:
    original = manifest_list(kept, "us/lake")
    objects = worker_objects(kept.registry.model_dump_json(), "ap")
    with refusing(f"file://{kept.folder}/us/", StoreUnreachable):
        assert objects.read(f"file://{original}") == original.read_bytes()


def test_an_origin_that_answers_is_read_and_no_copy(kept: World) -> None:
    objects, original = kept.context("ap").objects.with_verbatim_copies(), manifest_list(kept, "us/lake")
    manifest_list(kept, "eu/replica/_sterna/verbatim").write_bytes(b"another")
    assert objects.read(f"file://{original}") == original.read_bytes()
    original.unlink()
    with pytest.raises(ObjectMissing):
        objects.read(f"file://{original}")


def test_a_limit_for_files_holds_for_copies_too(kept: World) -> None:
    original = manifest_list(kept, "us/lake")
    objects = kept.context("ap").objects.with_verbatim_copies()
    with refusing(f"file://{kept.folder}/us/", StoreDenied), pytest.raises(SternaError, match="bytes"):
        objects.read(f"file://{original}", limit=10)


def test_a_region_reads_its_own_copies_first_and_then_the_cheapest(world: World) -> None:
    world = keeping(with_third_region(with_third_region(world), "sa"), "eu", "ap", "sa")
    mapping = priced(world, {"eu": 0.09, "sa": 0.02}).context("ap").mapping
    assert [other.region.name for other in regions_with_copies(mapping)] == ["ap", "sa", "eu"]
    assert regions_with_copies(keeping(world).context("ap").mapping) == ()
