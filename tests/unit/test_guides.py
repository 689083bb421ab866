"""How guides are read, and that each block of them can be typed or written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.demo.test_guides import GUIDES
from tests.support.guides import Block, GuideFailed, has_output, read_blocks, run_guide, steps


def block(text: str, language: str = "", file: str = "") -> Block:
    return Block(language, text, file, "docs/page.md:1")


@pytest.mark.parametrize(("page", "heading"), GUIDES)
def test_every_block_of_a_guide_can_be_run(page: str, heading: str) -> None:
    assert steps(read_blocks(page, heading))


def test_a_prompt_is_typed_and_the_rest_is_its_output() -> None:
    typed = steps([block("$ echo a \\\n  b\na b\n$ python -c 'print(1)\nprint(2)'\n1\n2\n"), block("only shown\n")])
    assert [(step.typed, step.shown) for step in typed] == [
        ("echo a \\\n  b\n", "a b\n"),
        ("python -c 'print(1)\nprint(2)'\n", "1\n2\n"),
    ]


def test_a_file_is_written_where_the_text_says(tmp_path: Path) -> None:
    blocks = [block("a: $HOME\n", "yaml", "/tmp/lake/a.yaml"), block("$ cat /tmp/lake/a.yaml\na: $HOME\n")]
    (lake := tmp_path / "lake").mkdir()
    (work := tmp_path / "work").mkdir()
    assert run_guide(blocks, lake, work) == "a: $HOME\n"
    with pytest.raises(ValueError, match=r"docs/page\.md:1: .* a file below"):
        steps([block("a: 1\n", "yaml")])


@pytest.mark.parametrize(
    ("shown", "output", "same"),
    [
        ("a at 2026-11-20T14:05:12+00:00\n", "a at 2026-11-28T23:59:59.123456Z\n", True),
        (
            "as of 5c1e…, whose\n  id is 8744736658442914487\n",
            f"as of {'ab' * 32}, whose id is 1234567890123456\n",
            True,
        ),
        ("one …\n…\nlast\n", "one thing\nmore\nlast\n", True),
        ("3 rows\n", "3 rows and more\n", False),
        ("3 rows\n", "4 rows\n", False),
    ],
)
def test_what_varies_may_be_another(shown: str, output: str, *, same: bool) -> None:
    assert has_output(shown, output) is same


def test_a_failure_names_the_page(tmp_path: Path) -> None:
    with pytest.raises(GuideFailed, match=r"docs/page\.md:1: exit code 3"):
        run_guide([block("echo before\n(exit 3)\n", "bash")], tmp_path, tmp_path)
    with pytest.raises(GuideFailed, match=r"docs/page\.md:1 shows"):
        run_guide([block("$ echo other\nsame\n")], tmp_path, tmp_path)
