"""What the engine says at its end: whether somebody has to look, or it is only started anew."""

from __future__ import annotations

import pytest

from sterna.config.secrets import environment_secrets
from sterna.config.sections.cdc import CdcSource
from sterna.errors import NeedsResync, PositionLost, SternaError
from sterna.pipelines.cdc.mysql import MysqlDatabase

_SOURCE_FIELDS = {"name": "shop", "region": "eu", "kind": "mariadb", "hosts": ["db:3306"], "credential_id": "shop"}
SHOP = MysqlDatabase(
    CdcSource.model_validate({**_SOURCE_FIELDS, "tables": ["s.*"], "into": "a"}), environment_secrets()
)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Error code: 1236; Could not find GTID state requested by slave in any binlog files", PositionLost),
        ("starting at binlog.000001, but this is no longer available on the server", PositionLost),
        ("Received DML 'update t' for processing, binlog contains statement or mixed events", NeedsResync),
        ("Error code: 1236; The master purged required binary logs", PositionLost),
        ("Cannot replicate because the source purged required binary logs", PositionLost),
    ],
)
def test_words_that_somebody_has_to_look_at(words: str, kind: type[SternaError]) -> None:
    with pytest.raises(kind):
        SHOP.raise_for_engine_error(words)


@pytest.mark.parametrize(
    "words",
    [
        "Communications link failure",
        "1236; A slave with the same server_uuid/server_id has connected",
        "no place for shop.purged at binlog.000002:512360",
        "Table 'shop.purged' doesn't exist",
    ],
)
def test_words_after_which_it_is_tried_again(words: str) -> None:
    SHOP.raise_for_engine_error(words)
