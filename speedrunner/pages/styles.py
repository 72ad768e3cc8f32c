"""The look of each method in every figure: readable without colors, and by color-blind readers."""

from __future__ import annotations

from typing import Any, NamedTuple

from speedrunner.results.conditions import ALL_PUBLIC, ASI_STYLE, OFF, OURS, REACT

PALETTE = {
    "navy": ("#10306f", "#dfe8ff"),
    "green": ("#086658", "#528d5b"),
    "sky": ("#1f8dd0", "#59c6e7"),
    "orange": ("#d87d24", "#ecd738"),
    "red": ("#c44e00", "#e78127"),
    "pink": ("#b5528f", "#d070a8"),
    "gray": ("#797979", "#707070"),
    "silver": ("#b5b5b5", "#5c5c5c"),
}
"""Each color on a light and on a dark background."""


class Style(NamedTuple):
    """A color of the palette, with dash, marker and hatch in matplotlib's notation."""

    color: str
    dash: Any
    marker: str
    hatch: str

    @property
    def ink(self) -> str:
        """Return the color on a light background, as #rrggbb."""
        return PALETTE[self.color][0]


_SOLID, _DOTTED, _DASHED, _DASH_DOT = "-", (0, (1, 1.4)), (0, (4, 1.6)), (0, (5, 1.4, 1, 1.4))
_LONG, _LONG_DOT = (0, (8, 2)), (0, (8, 1.6, 1, 1.6))

STYLES = {
    REACT: Style("gray", _DOTTED, "o", ".."),
    "opo": Style("orange", _DASHED, "s", "//"),
    "asi": Style("sky", _DASH_DOT, "D", "\\\\"),
    "asi_replay": Style("pink", _LONG, "P", "xx"),
    "voyager": Style("green", _LONG_DOT, "^", "--"),
    OURS: Style("navy", _SOLID, "*", ""),
    OFF: Style("red", _DASHED, "X", "++"),
    ASI_STYLE: Style("sky", _DOTTED, "D", "\\\\"),
    ALL_PUBLIC: Style("green", _DASH_DOT, "s", "//"),
    "uncached": Style("red", _SOLID, "o", ""),
    "cached": Style("silver", _DOTTED, "s", "//"),
    "output": Style("navy", _DASHED, "D", "xx"),
    "with prefix cache": Style("silver", _DOTTED, "s", "//"),
    "without": Style("red", _SOLID, "o", ""),
}

OTHERS = (
    Style("orange", _DASHED, "s", "//"),
    Style("green", _DOTTED, "X", "xx"),
    Style("pink", _DASH_DOT, "P", "--"),
)


def style(name: str) -> Style:
    """Return the look of a method or of another series; a name has the same look in all figures."""
    return STYLES.get(name) or OTHERS[sum(name.encode()) % len(OTHERS)]


def palette_css() -> str:
    """Return CSS variables of the palette, such as `--navy`, for light and for dark pages."""
    light, dark = (" ".join(f"--{name}: {colors[n]};" for name, colors in PALETTE.items()) for n in range(2))
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
