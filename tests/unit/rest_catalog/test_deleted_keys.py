"""Which keys a body names: by a grammar of its own that leaves nothing to a parser's mind."""

from __future__ import annotations

import pytest

from sterna.errors import Forbidden
from sterna.serving.rest_catalog.deleted_keys import read_deleted_keys

SPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
JAVA = f'<Delete xmlns="{SPACE}"><Object><Key>a/1.avro</Key></Object><Object><Key>a&amp;b</Key></Object></Delete>'
PYTHON = f'<Delete xmlns="{SPACE}"><Object><Key>a/1.avro</Key></Object><Quiet>true</Quiet></Delete>'


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        (JAVA, ["a/1.avro", "a&b"]),
        (PYTHON, ["a/1.avro"]),
        (f'<?xml version="1.0" encoding="UTF-8"?>\n{PYTHON}', ["a/1.avro"]),
        ("<Delete>\n <Object>\n  <Key>a b&#x20;</Key>\n </Object>\n</Delete>", ["a b "]),
        ("<Delete><Object><Key>&lt;&gt;&quot;&apos;&amp;lt;</Key></Object></Delete>", ["<>\"'&lt;"]),
        ("<Delete><Object><Key>&#228;&#xE4;&#x1F600;&#160;&#00065;</Key></Object></Delete>", ["ää\U0001f600\xa0A"]),
        ("<Delete><Quiet>false</Quiet><Object><Key> ä </Key></Object></Delete>", [" ä "]),
    ],
)
def test_the_keys_of_a_plain_list_are_read(body: str, keys: list[str]) -> None:
    assert read_deleted_keys(body.encode()) == keys


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"<Delete></Delete>",
        b"<Delete><Object><Key></Key></Object></Delete>",
        b"<Delete><Object><Key>a</Key><VersionId>1</VersionId></Object></Delete>",
        b"<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
        b"<Delete><Object><Key>a<!-- -->b</Key></Object></Delete>",
        b"<Delete><Object><Key><![CDATA[b]]></Key></Object></Delete>",
        b"<Delete><!-- <Object><Key>a</Key></Object> --><Object><Key>b</Key></Object></Delete>",
        b'<!DOCTYPE Delete [<!ENTITY e "b">]><Delete><Object><Key>&e;</Key></Object></Delete>',
        b"<Delete><Object><Key>a&e;</Key></Object></Delete>",
        b"<Delete><Object><Key>a & b</Key></Object></Delete>",
        *(
            f"<Delete><Object><Key>a&{reference};</Key></Object></Delete>".encode()
            # HTML reads the second one as a euro sign, and the last one as a replacement character.
            for reference in (
                "#0",
                "#128",
                "#x80",
                "#x9F",
                "#127",
                "#13",
                "#x0D",
                "#31",
                "#xD800",
                "#xFFFF",
                "#x110000",
            )
        ),
        b"<Delete><Object><Key>a&nbsp;</Key></Object></Delete>",
        b"<Delete><Object><Key>a&ampb;</Key></Object></Delete>",
        b"<Delete><Object><Key>a&#X41;</Key></Object></Delete>",
        b"<Delete><Object><Key>a\r</Key></Object></Delete>",
        b"<Delete><Object><Key>a\x01</Key></Object></Delete>",
        b"<Delete><Object x='1'><Key>a</Key></Object></Delete>",
        b"<Delete><o:Object xmlns:o='x'><Key>a</Key></o:Object></Delete>",
        b"<Delete xmlns='http://example.com/'><Object><Key>a</Key></Object></Delete>",
        b"<Delete><Object><Key>a</Key></Object></Delete><Delete><Object><Key>b</Key></Object></Delete>",
        b'<?xml version="1.0" encoding="UTF-16"?><Delete><Object><Key>a</Key></Object></Delete>',
        b"<Delete><Object><Key>\xff</Key></Object></Delete>",
        "<Delete><Object><Key>a</Key></Object></Delete>".encode("utf-16"),
        b"<Delete>" + b"<Object><Key>a</Key></Object>" * 1001 + b"</Delete>",
        b"<Delete><Object><Key>a</Key></Object>and more</Delete>",
    ],
)
def test_anything_else_is_refused(body: bytes | None) -> None:
    with pytest.raises(Forbidden):
        read_deleted_keys(body)
