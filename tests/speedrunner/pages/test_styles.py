"""Colours, dashes, markers and hatches that stay apart for every reader."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from speedrunner.pages.styles import PALETTE, palette_css, style

TOGETHER = (
    ("react", "opo", "asi", "voyager", "speedrunner"),
    ("asi", "asi_replay", "speedrunner"),
    ("speedrunner", "speedrunner-no-interpreter", "speedrunner-prompt_asi_style",
     "speedrunner-visibility_all_public"),
    ("uncached", "cached", "output"),
    ("with prefix cache", "without"),
)  # fmt: skip
"""Names in one panel."""

SIGHT = {
    "all colours": np.eye(3),
    "no red": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "no green": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
}
"""What people see of linear RGB (Machado, Oliveira and Fernandes, 2009, at full severity)."""

WHITE = np.array([0.9505, 1.0, 1.0888])
XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def linear(color: str) -> np.ndarray:
    """Return linear RGB of #rrggbb."""
    parts = np.array([int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """Return CIELAB of linear RGB."""
    x, y, z = np.cbrt(XYZ @ rgb.clip(0.001, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("names", TOGETHER)
def test_names_together_differ_without_colours(names: tuple[str, ...]) -> None:
    for one, other in combinations(map(style, names), 2):
        assert one.dash != other.dash
        assert one.marker != other.marker
        assert one.hatch != other.hatch


@pytest.mark.parametrize("background", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("names", TOGETHER)
def test_colours_together_differ_for_every_reader(
    names: tuple[str, ...], sight: str, background: int
) -> None:
    colors = [PALETTE[style(name).color][background] for name in names]
    for one, other in combinations(colors, 2):
        seen = [lab(SIGHT[sight] @ linear(color)) for color in (one, other)]
        assert np.linalg.norm(seen[0] - seen[1]) > 9, (one, other)


@pytest.mark.parametrize(("background", "page"), [(0, "#ffffff"), (1, "#14171b")], ids=["light", "dark"])
def test_lines_have_contrast_to_the_page(background: int, page: str) -> None:
    for name, colors in PALETTE.items():
        if name != "silver":  # fills bars, draws no line
            one, other = sorted(float(XYZ[1] @ linear(color)) for color in (colors[background], page))
            assert (other + 0.05) / (one + 0.05) > 3 or name == "orange"


def test_a_page_gets_each_colour_twice() -> None:
    css = palette_css()
    for name, colors in PALETTE.items():
        assert all(f"--{name}: {color};" in css for color in colors)
