"""Guides of `docs/`, run as a reader runs them: each block in its order, in one shell, with the output that they show.

`bash` blocks are typed. A block without a language that begins with `$ ` is typed, too, and its other lines are what
then appears. Any other language is a file's content, which goes where the text before the block says. A block without
a language and a prompt is shown alone.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from sterna.servers.process import free_port

ROOT = Path(__file__).parents[2]
LAKE = "/tmp/lake"
_PORTS = ("8080", "6379")
_TIMEOUT_SECONDS = 840.0  # less than a test has
_PASSED = ("HOME", "PATH", "PYTHONPATH", "TMPDIR", "STERNA_CACHE")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)$")
_HEADING = re.compile("^##+ ")
_FILE = re.compile(rf"`({LAKE}/[\w./-]+)`")
_PROMPT = "$ "
# What is another one each time, on both sides of a comparison.
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{4,}…"), "<id>"),  # as a page shortens it
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "<id>"),
    (re.compile(r"\b\d+(?:\.\d+)? s\b"), "<seconds>"),
)
_OMISSION = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Args:
        language: what its fence says, or "".
        text: its lines without the indent of a list.
        file: where the text before it says that it goes, or "".
        place: page and line, for a failure.
    """

    language: str
    text: str
    file: str
    place: str


@dataclass(frozen=True)
class Step:
    """What is typed at once, and what the page shows of its output.

    Args:
        typed: lines of a shell.
        shown: None where the page shows nothing.
        place: page and line.
    """

    typed: str
    shown: str | None
    place: str


def read_blocks(page: str, heading: str) -> list[Block]:
    """Return the fenced blocks below a heading, up to the next heading.

    Args:
        page: a file in `docs/`.
        heading: the whole line.
    """
    lines = (ROOT / "docs" / page).read_text().splitlines()
    start = lines.index(heading) + 1
    end = next((number for number in range(start, len(lines)) if _HEADING.match(lines[number])), len(lines))
    return list(_blocks(lines[start:end], page, start))


def _blocks(lines: Sequence[str], page: str, first: int) -> Iterator[Block]:
    fence: re.Match[str] | None = None
    inside: list[str] = []
    before: list[str] = []
    for number, line in enumerate(lines, first + 1):
        if fence is None:
            fence = _FENCE.match(line)
            if fence is None:
                before.append(line)
        elif line == f"{fence['indent']}```":
            text = "".join(f"{it.removeprefix(fence['indent'])}\n" for it in inside)
            files = _FILE.findall(" ".join(before))
            place = f"docs/{page}:{number - len(inside) - 1}"
            yield Block(fence["language"], text, files[-1] if files else "", place)
            fence, inside, before = None, [], []
        else:
            inside.append(line)


def steps(blocks: Sequence[Block]) -> list[Step]:
    """Return what a reader types, and which files they write before.

    Raises:
        ValueError: a file's content stands there, and the text before doesn't say where it goes.
    """
    return [step for block in blocks for step in _steps(block)]


def _steps(block: Block) -> Iterator[Step]:
    if block.language == "bash":
        yield Step(block.text, None, block.place)
    elif block.language:
        if not block.file:
            raise ValueError(f"{block.place}: the text before doesn't name a file below {LAKE}")
        yield Step(f"cat > {block.file} <<'{_END}'\n{block.text}{_END}\n", None, block.place)
    elif block.text.startswith(_PROMPT):
        yield from _typed(block)


_END = "THE_END_OF_THE_FILE"


def _typed(block: Block) -> Iterator[Step]:
    """Yield each command behind a prompt, with the lines up to the next prompt."""
    typed, shown = "", ""
    for line in block.text.splitlines(keepends=True):
        if _goes_on(typed):
            typed += line
        elif line.startswith(_PROMPT):
            if typed:
                yield Step(typed, shown, block.place)
            typed, shown = line.removeprefix(_PROMPT), ""
        else:
            shown += line
    yield Step(typed, shown, block.place)


def _goes_on(typed: str) -> bool:
    """Return whether the shell expects more: the line ends with a backslash, or a quotation isn't closed."""
    try:
        shlex.split(typed)
    except ValueError:
        return True
    return typed.endswith("\\\n")


def has_output(shown: str, output: str) -> bool:
    """Return whether a command's output is what a page shows of it.

    Blanks and line breaks don't count, as pages break long lines. Times, hashes and long numbers may be others, and an
    omission (…) is any text.
    """
    pattern = ".*?".join(re.escape(part) for part in _comparable(shown).split(_OMISSION))
    return re.fullmatch(pattern, _comparable(output), re.DOTALL) is not None


def _comparable(text: str) -> str:
    return "".join(reduce(lambda before, rule: rule[0].sub(rule[1], before), _VARYING, text).split())


class GuideFailed(AssertionError):
    """A guide doesn't do what it says."""


def run_guide(blocks: Sequence[Block], lake: Path, work: Path, replaced: Mapping[str, str] | None = None) -> str:
    """Type the blocks into one shell, and compare the output that they show; return all output.

    Folder and ports are the test's own.

    Args:
        blocks: of one guide, after those of what it begins with.
        lake: where `demo --empty` works.
        work: an empty folder for the outputs.
        replaced: further texts that are others here.

    Raises:
        GuideFailed: a command failed, or its output is not what the page shows.
    """
    texts = {LAKE: str(lake), **{port: str(free_port()) for port in _PORTS}, **(replaced or {})}
    typed = [Step(_replace(it.typed, texts), it.shown and _replace(it.shown, texts), it.place) for it in steps(blocks)]
    code = _run(typed, work)
    outputs = [path.read_text() if (path := work / str(number)).exists() else None for number in range(len(typed))]
    seen = [(step, output) for step, output in zip(typed, outputs, strict=True) if output is not None]
    if code:
        raise GuideFailed(f"{seen[-1][0].place}: exit code {code}\n{_transcript(seen)}")
    for step, output in seen:
        if step.shown is not None and not has_output(step.shown, output):
            raise GuideFailed(f"{step.place} shows\n{step.shown}\nand there came\n{output}\n\n{_transcript(seen)}")
    return "".join(output for _, output in seen)


def _run(typed: Sequence[Step], work: Path) -> int:
    """Run all in one shell, whose background jobs end with it; a step's output goes to the file of its number."""
    script = "".join(
        f"exec > {shlex.quote(str(work / str(number)))} 2>&1\n{_tolerant(step)}" for number, step in enumerate(typed)
    )
    environ = {name: os.environ[name] for name in _PASSED if name in os.environ}
    command = ["bash", "-c", f"set -eu\n{script}"]
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(_TIMEOUT_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _tolerant(step: Step) -> str:
    """Return what is typed; where the page shows an output, that decides, and not the exit code."""
    shown = (step.shown or "").replace(_OMISSION, "").strip()
    return f"{{\n{step.typed}}} || true\n" if shown else step.typed


def _replace(text: str, replaced: Mapping[str, str]) -> str:
    return re.sub("|".join(map(re.escape, replaced)), lambda match: replaced[match[0]], text)


def _transcript(seen: Sequence[tuple[Step, str]]) -> str:
    return "\n".join(f"{step.place}\n{step.typed}{output[-2000:]}" for step, output in seen)
