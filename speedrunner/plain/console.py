"""Print text on a terminal: untrusted text, columns, and the status of long work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

Status = Callable[[str], None]
"""Shows one line: the current step, and the results so far."""

WIDTH = 80
"""Columns of a usual terminal."""

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"
    r"\u061c\u202a-\u202e"  # writing directions
    r"\xad\u180e\u200b-\u200f\u2060-\u206f\ufeff\U000e0000-\U000e0fff"  # invisible characters, and directions
    r"\u2028\u2029\ud800-\udfff]"  # line and paragraph separators; lone surrogates
)


def visible(text: str) -> str:
    """Return `text` with control characters escaped, except tab and newline. No skill, game or log can then
    control the terminal or display something else there."""
    return _CONTROL.sub(lambda found: _escape_code(ord(found.group())), text)


def json_text(value: Any) -> str:
    """Return JSON in one line, with the same characters escaped, so that it can be printed."""
    text = msgspec.json.encode(value).decode()
    return _CONTROL.sub(lambda found: json.dumps(found.group())[1:-1], text)


def _escape_code(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def align_columns(rows: Sequence[Sequence[str]], *, left: int = 1, notes: Sequence[str] = ()) -> list[str]:
    """Return the lines of a table. No cell is ever cut. Its gaps are narrow if it is wider than `WIDTH`.

    Args:
        rows: cells; the first row has the headings, which may have several lines.
        left: number of columns, from the first, that are aligned left; the others are aligned right.
        notes: free text at the end of each row except the first.
    """
    rows = [[visible(cell) for cell in row] for row in rows]  # before their widths are measured
    heads = [cell.split("\n") for cell in rows[0]]
    height = max(map(len, heads))
    above = [[""] * (height - len(head)) + head for head in heads]
    rows = [*(tuple(head[line] for head in above) for line in range(height)), *rows[1:]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.ljust if place < left else str.rjust for place in range(len(widths))]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else " "
    lines = [
        gap.join(pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)) for row in rows
    ]
    ends = [""] * height + [*notes] if notes else [""] * len(rows)
    return [f"{line}  {end}".rstrip() for line, end in zip(lines, ends, strict=True)]


def count_of(number: int, thing: str) -> str:
    """Return a number with its noun: `1 run`, `1,200 runs`."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def shorten(text: str, limit: int = WIDTH) -> str:
    """Return a text of at most `limit` characters; dots replace the end of a longer one."""
    return text if len(text) <= limit else f"{text[: limit - 3].rstrip()}..."


def short_number(value: float | None) -> str:
    """Return three digits, in thousands, millions or billions if that is shorter: `1.23M`; `-` for `None`."""
    if value is None:
        return "-"
    for sign, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def describe_seconds(seconds: float) -> str:
    """Return a duration as `24 s`, `12 min` or `2 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def prefix_status(status: Status, doing: str) -> Status:
    """Return the status of a part: its lines start with `doing`."""
    status(doing)
    return lambda line: status(f"{doing}: {line}")
