"""Plots as plain SVG: a bar for each side's median, a dot for each round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

_WIDTH, _LABEL, _BAR, _GAP = 760, 210, 18, 6
_COLOURS = ("#0b6e99", "#c9743a", "#7a7a7a", "#5b8c5a", "#8a5b8c", "#b0a030")


def draw(lines: Sequence[dict[str, Any]]) -> str:
    """Return a bench's results as a plot, one group of bars a case.

    Args:
        lines: results, as `Result.as_json` returns them.
    """
    body: list[str] = []
    y = 10
    for line in lines:
        unit = "MiB" if line["unit"] == "MiB" else "s"
        verdict = f"{line['figure']:g} {line['unit']}"
        if line["goal"]:
            verdict += f"; goal {line['goal']}: {'met' if line['met'] else 'missed'}"
        body.append(_text(10, y + 12, f"{line['name']} {line['case']}: {verdict}", weight="bold"))
        y += 22
        largest = max(max(side["rounds"]) for side in line["sides"].values()) or 1.0
        for index, (name, side) in enumerate(line["sides"].items()):
            body += _bar(y, name, side, largest, _COLOURS[index % len(_COLOURS)], unit)
            y += _BAR + _GAP
        y += 14
    size = f'width="{_WIDTH}" height="{y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect {size} fill="white"/>', *body, "</svg>"]) + "\n"


def _bar(y: int, name: str, side: dict[str, Any], largest: float, colour: str, unit: str) -> list[str]:
    scale = (_WIDTH - _LABEL - 100) / largest
    middle = y + _BAR / 2
    width = side["median"] * scale
    dots = [
        f'<circle cx="{_LABEL + value * scale:.1f}" cy="{middle:g}" r="2.5" fill="black"/>' for value in side["rounds"]
    ]
    return [
        _text(_LABEL - 8, y + 13, name, anchor="end"),
        f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>',
        *dots,
        _text(int(_LABEL + max(side["rounds"]) * scale) + 8, y + 13, f"{side['median']:g} {unit}"),
    ]


def _text(x: int, y: int, text: str, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
