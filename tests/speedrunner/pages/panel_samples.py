"""Panels of every kind."""

from __future__ import annotations

from speedrunner.pages.panels import Figure, Line, Panel

ODD = "$x^{ <b>&\x1b[31m_\uffff"
"""A name with what means something to HTML, XML, LaTeX and terminals, and a character that XML forbids."""


def figure(*panels: Panel) -> Figure:
    return Figure("some", "A figure", "", [list(panels)], [], "")


def curves(*names: str) -> Panel:
    return Panel("BabyAI", "rollouts", "score", [Line(n, [0, 50], [0.1, 0.2], [None, 0.1], 1) for n in names])


BARS = Panel(
    "Crafter", "zombies", "score", [Line("react", ["0x", "1x"], [0.1, 0.2], [None, 0.1], 1)],
    kind="bars", over=[Line("react", ["0x", "1x"], [10.0, 20.0], [None, None], 1)], over_y="combat (%)",
)  # fmt: skip
STACK = Panel(
    ODD, "tokens", "",
    [Line(name, [ODD, "asi"], [2e6, 1e6], [None, None], 1) for name in ("cached", "output")], kind="stack",
)  # fmt: skip
POINTS = Panel(
    "BabyAI", "USD per episode", "score",
    [Line("react", [0.0001], [0.2], [None], 1), Line("asi", [0.0002], [0.3], [0.1], 2)],
    kind="points", frontier=["react", "asi"],
)  # fmt: skip
DOTS = Panel(
    "", "LLM calls per episode", "",
    [
        Line("hidden", [ODD, "open"], [-5.0, 2.0], [None, None], 1, ends=[(-5.5, -4.0), None]),
        Line("Shapley value", ["open"], [1.0], [None], 1, ends=[(0.5, 1.5)]),
    ],
    kind="dots",
)  # fmt: skip
MATRIX = Panel(
    "models", "player", "library",
    [
        Line("large", ["large", ODD], [1.0, 0.25], [None, None], 1, notes=["40 tokens", "1,200 tokens"]),
        Line(ODD, [ODD], [0.0], [None], 1, notes=["no request"]),
    ],
    kind="matrix",
)  # fmt: skip
