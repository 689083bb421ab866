"""Draw the diagrams that the documents show: `python -m tests.diagrams docs/pictures`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

Point = tuple[int, int]

_STYLE = """
  text { font: 14px "Helvetica Neue", Arial, "Liberation Sans", "DejaVu Sans", sans-serif; fill: #1f2937 }
  .title { font-weight: 600 }
  .note { font-size: 12.5px; fill: #4b5563 }
  .region { fill: #f8fafc; stroke: #cbd5e1; stroke-dasharray: 5 4 }
  .box { fill: #ffffff; stroke: #64748b }
  .branch { fill: #eff6ff; stroke: #2563eb }
  .store { fill: #f0fdf4; stroke: #16a34a }
  .arrow { fill: none; stroke: #334155; stroke-width: 1.6; marker-end: url(#head) }
"""
_LINE_PIXELS = 19


@dataclass(frozen=True)
class Box:
    """A rectangle with lines of text, the first one bold.

    Args:
        kind: `box`, `branch`, `store`, or `region`, whose text stands at its top.
        left, top, width, height: pixels.
    """

    kind: str
    left: int
    top: int
    width: int
    height: int
    lines: Sequence[str]

    def svg(self) -> str:
        """Return it as elements."""
        text_height = _LINE_PIXELS * len(self.lines)
        first = self.top + (22 if self.kind == "region" else (self.height - text_height) // 2 + 14)
        center = self.left + (self.width // 2)
        texts = [
            f'<text x="{center}" y="{first + _LINE_PIXELS * index}" text-anchor="middle" '
            f'class="{"note" if index else "title"}">{escape(line)}</text>'
            for index, line in enumerate(self.lines)
        ]
        size = f'x="{self.left}" y="{self.top}" width="{self.width}" height="{self.height}"'
        return "\n".join([f'<rect {size} rx="8" class="{self.kind}"/>', *texts])


@dataclass(frozen=True)
class Arrow:
    """A line from one point by others to the last one, with a label.

    Args:
        points: pixels.
        label: its text, which stands at `at`, and begins, ends or is centered there.
    """

    points: Sequence[Point]
    label: str = ""
    at: Point = (0, 0)
    anchor: str = "middle"

    def svg(self) -> str:
        """Return it as elements."""
        path = "M" + " L".join(f"{x} {y}" for x, y in self.points)
        label = f'<text x="{self.at[0]}" y="{self.at[1]}" text-anchor="{self.anchor}" class="note">'
        return f'<path d="{path}" class="arrow"/>' + (f"\n{label}{escape(self.label)}</text>" if self.label else "")


_FLOW = (
    Box("region", 20, 130, 260, 250, ["Region us"]),
    Box("region", 330, 130, 610, 250, ["Region eu: one sync, started by its own Airflow"]),
    Box("box", 20, 20, 200, 64, ["Writers", "in any region"]),
    Box("branch", 330, 20, 250, 64, ["main", "of the Nessie catalog"]),
    Box("branch", 690, 20, 250, 64, ["main_replica_eu", "all files in eu, read-only"]),
    Box("store", 50, 285, 200, 66, ["us's store", "data, deletes, metadata"]),
    Box("box", 350, 180, 130, 64, ["plan", "what changed"]),
    Box("box", 502, 180, 130, 64, ["copy", "each file proven"]),
    Box("box", 654, 180, 130, 64, ["localize", "paths to eu's"]),
    Box("box", 806, 180, 118, 64, ["publish", "one commit"]),
    Box("store", 502, 285, 282, 66, ["eu's store", "copies, localized metadata"]),
    Box("box", 806, 285, 118, 66, ["Engines", "of eu"]),
    Arrow([(220, 52), (326, 52)], "commit", (273, 44)),
    Arrow([(80, 84), (80, 281)], "files", (90, 118), "start"),
    Arrow([(415, 84), (415, 176)], "diff", (425, 118), "start"),
    Arrow([(480, 212), (498, 212)]),
    Arrow([(632, 212), (650, 212)]),
    Arrow([(784, 212), (802, 212)]),
    Arrow([(865, 180), (865, 88)], "all changed tables at once", (855, 118), "end"),
    Arrow([(250, 318), (290, 318), (290, 262), (540, 262), (540, 248)], "files that eu lacks", (342, 279), "start"),
    Arrow([(600, 244), (600, 281)]),
    Arrow([(719, 244), (719, 281)]),
    Arrow([(806, 318), (788, 318)]),
    Arrow([(924, 318), (932, 318), (932, 88)], "read", (926, 268), "end"),
)
"""A commit's way from `main` to a region's replica branch."""

_REST_ADDRESS = (
    Box("region", 20, 20, 640, 290, ["Region eu"]),
    Box("region", 700, 20, 240, 290, ["Other regions"]),
    Box("box", 40, 120, 140, 84, ["Engines of eu", "Spark, Trino,", "PyIceberg …"]),
    Box("box", 290, 120, 170, 84, ["eu's REST address", "one URL", "sterna serve"]),
    Box("branch", 490, 55, 150, 60, ["main_replica_eu", "what eu reads"]),
    Box("store", 290, 235, 350, 56, ["eu's store", "copies, and what engines of eu write"]),
    Box("branch", 720, 130, 200, 64, ["main", "files by their own URIs"]),
    Box("store", 720, 235, 200, 56, ["their stores", "one sync later"]),
    Arrow([(180, 145), (286, 145)], "load, commit", (233, 137)),
    Arrow([(375, 120), (375, 85), (486, 85)], "load", (430, 77)),
    Arrow([(460, 162), (716, 162)], "commit, with main's URIs", (550, 154)),
    Arrow([(110, 204), (110, 263), (286, 263)], "read, write files", (118, 255), "start"),
    Arrow([(820, 194), (820, 231)]),
)
"""How an engine reads and writes by its region's own Iceberg REST catalog."""

DIAGRAMS = {
    "flow.svg": (960, 400, "A commit's way from main to a region's replica branch", _FLOW),
    "rest-address.svg": (960, 330, "An engine at its region's REST address", _REST_ADDRESS),
}
"""By file name: width and height in pixels, title, and elements."""


def draw(name: str) -> str:
    """Return a diagram as SVG."""
    width, height, title, elements = DIAGRAMS[name]
    body = "\n".join(element.svg() for element in elements)
    head = '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f'<defs>{head}<path d="M0 0 L10 5 L0 10 z" fill="#334155"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    """Write all diagrams to the folder that is the first argument."""
    folder = Path(sys.argv[1])
    for name in DIAGRAMS:
        (folder / name).write_text(draw(name))


if __name__ == "__main__":
    main()
