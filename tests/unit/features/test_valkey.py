"""Where a URL leads, and what is told of a store's errors: nothing that was sent."""

from __future__ import annotations

from typing import Any

import pytest
from valkey import exceptions

from sterna.config.registry.connection import Credential
from sterna.errors import CredentialError, FeatureStoreFull, FeatureStoreRefused, FeatureStoreUnreachable
from sterna.pipelines.features.valkey import StoreAddress, open_async_store, open_store, parse_address, translate_errors


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("valkey://x", StoreAddress((("x", 6379),), False)),
        ("rediss://x:7/3", StoreAddress((("x", 7),), True, "", 3)),
        ("valkeys+sentinel://a,b:9/m", StoreAddress((("a", 26379), ("b", 9)), True, "m")),
        ("valkey+sentinel://a/m/2", StoreAddress((("a", 26379),), False, "m", 2)),
    ],
)
def test_addresses(url: str, address: StoreAddress) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (exceptions.ConnectionError("hunter2"), FeatureStoreUnreachable),
        (exceptions.TimeoutError("hunter2"), FeatureStoreUnreachable),
        (exceptions.BusyLoadingError("hunter2"), FeatureStoreUnreachable),
        (exceptions.ReadOnlyError("hunter2"), FeatureStoreUnreachable),
        (exceptions.ResponseError("MISCONF hunter2"), FeatureStoreUnreachable),
        (exceptions.AuthenticationError("hunter2"), CredentialError),
        (exceptions.ResponseError("NOAUTH hunter2"), CredentialError),
        (exceptions.NoPermissionError("NOPERM hunter2"), CredentialError),
        (exceptions.OutOfMemoryError("hunter2"), FeatureStoreFull),
        (exceptions.ResponseError("OOM hunter2"), FeatureStoreFull),
        (exceptions.ResponseError("WRONGTYPE hunter2"), FeatureStoreRefused),
    ],
)
def test_errors(raised: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind) as excinfo, translate_errors("valkey://x:1"):
        raise raised
    assert "hunter2" not in str(excinfo.value) and "x:1" in str(excinfo.value)


def test_clients_are_opened_with_their_credential_and_tls() -> None:
    def secrets(id: str) -> Credential:
        return Credential(id, "who", "hunter2" if id == "good" else "")

    for opened in (open_store, open_async_store):
        client: Any = opened("valkeys://x:1/2", "good", secrets)
        options = client.connection_pool.connection_kwargs
        assert (options["username"], options["password"], options["db"]) == ("who", "hunter2", 2)
        assert options["ssl_cert_reqs"] == "required" and options["ssl_check_hostname"]
        behind: Any = opened("valkey+sentinel://a,b/m", "good", secrets)
        assert behind.connection_pool.service_name == "m"
        with pytest.raises(CredentialError, match="needs a password"):
            opened("valkey://x", "none", secrets)
