"""What a store's failures are called, and that none of them tells a secret."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sterna.errors import CredentialError, StoreDenied, StoreUnreachable
from tests.support.doubles.http_server import answer, half_answer, scripted_server
from tests.support.stores import SECRET, Stores

_dark = {"type": "s3", "options": {"endpoint": "http://127.0.0.1:1"}}


@pytest.fixture
def silent() -> Iterator[str]:
    """An endpoint that takes connections and says nothing."""
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


class TestFaults:
    def test_a_dark_endpoint_is_named_and_a_later_run_resumes(self, served: Stores) -> None:
        dark = served.with_location("us", remote=_dark).objects
        for call in (
            lambda: dark.read(f"{served.us}/f"),
            lambda: dark.size(f"{served.us}/f"),
            lambda: dark.sizes(f"{served.us}/{number}" for number in range(20)),
            lambda: dark.write_new(f"{served.us}/f", b""),
            lambda: list(dark.list(served.us)),
        ):
            with pytest.raises(StoreUnreachable, match=r"http://127\.0\.0\.1:1.*a later run resumes") as raised:
                call()
            assert SECRET not in str(raised.value)

    def test_an_endpoint_that_never_answers_is_given_up(self, served: Stores, silent: str) -> None:
        remote = {"type": "s3", "options": {"endpoint": silent}}
        slow = served.with_location("us", remote=remote).objects
        slow.timeout = 1.0
        with pytest.raises(StoreUnreachable, match=silent):
            slow.read(f"{served.us}/f")

    @pytest.mark.parametrize("broken", [1, 2, 3])
    def test_an_object_whose_content_breaks_off_is_read_again(self, served: Stores, broken: int) -> None:
        """The client does so itself where the answer has an ETag and wasn't reset.

        A table of a thousand manifests would wait else.
        """
        with scripted_server(*(half_answer(200, "0123456789"),) * broken, answer(200, "0123456789")) as server:
            remote = {"type": "s3", "options": {"endpoint": server.uri}}
            objects = served.with_location("us", remote=remote).objects
            if broken < 3:
                assert objects.read(f"{served.us}/f") == b"0123456789"
                assert len(server.requests) == broken + 1
            else:
                with pytest.raises(StoreUnreachable, match="body"):
                    objects.read(f"{served.us}/f")

    def test_a_refused_key_names_the_credential_and_not_its_secret(self, served: Stores) -> None:
        wrong = served.with_location("us", secret="anotherSecret99").objects
        for call in (
            lambda: wrong.read(f"{served.us}/f"),
            lambda: wrong.size(f"{served.us}/f"),
            lambda: list(wrong.list(served.us)),
        ):
            with pytest.raises(StoreDenied, match="'us_store'") as raised:
                call()
            assert "anotherSecret99" not in str(raised.value)

    def test_a_missing_credential_names_its_id(self, served: Stores) -> None:
        with pytest.raises(CredentialError, match="nobody"):
            served.with_location("us", credential_id="nobody").objects.read(f"{served.us}/f")

    def test_a_missing_bucket_is_no_missing_object(self, served: Stores) -> None:
        with pytest.raises(StoreUnreachable, match="no such bucket"):
            served.with_location("us", prefix="s3://nobucket").objects.read("s3://nobucket/f")

    def test_the_environment_can_not_redirect_a_location(self, served: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
        served.put(f"{served.us}/environment", b"right")
        for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_BUCKET"):
            monkeypatch.setenv(name, "wrong")
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
        assert served.with_location("us").objects.read(f"{served.us}/environment") == b"right"
