"""What each method looks like, on the screen and in print: told apart in greyscale, too."""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """Dash, marker and hatching as Plotly calls them."""

    color: str
    dash: str
    marker: str
    hatching: str


# Okabe and Ito's colours, for people who see few; each has another lightness, dash, marker and hatching.
STYLES = {
    "react": Style("#7f7f7f", "dot", "circle", "."),
    "opo": Style("#e69f00", "dash", "square", "/"),
    "asi": Style("#56b4e9", "dashdot", "diamond", "\\"),
    "asi_replay": Style("#cc79a7", "longdash", "cross", "x"),
    "voyager": Style("#009e73", "longdashdot", "triangle-up", "-"),
    "speedrunner": Style("#0b3c8a", "solid", "star", ""),
    "speedrunner-interpreter_off": Style("#d55e00", "dash", "x", "+"),
    "speedrunner-prompt_asi_style": Style("#56b4e9", "dot", "diamond", "\\"),
    "speedrunner-visibility_all_public": Style("#009e73", "dashdot", "square", "/"),
    "uncached": Style("#d55e00", "solid", "circle", ""),
    "cached": Style("#c9c9c9", "dot", "square", "/"),
    "output": Style("#0b3c8a", "dash", "diamond", "x"),
    "with prefix cache": Style("#c9c9c9", "dot", "square", "/"),
    "without": Style("#d55e00", "solid", "circle", ""),
}

OTHERS = (
    Style("#e69f00", "dash", "square", "/"),
    Style("#009e73", "dot", "x", "x"),
    Style("#cc79a7", "dashdot", "cross", "-"),
)

FAINT = 0.13
"""Opacity of a band."""


def style(name: str) -> Style:
    """Of a method, or of what else a line is; the same for a name wherever it is drawn."""
    return STYLES.get(name) or OTHERS[sum(name.encode()) % len(OTHERS)]
