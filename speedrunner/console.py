"""Print text on a terminal: untrusted text, columns, and the status of long work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

Status = Callable[[str], None]
"""Shows one line: the current step, and the results so far."""

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


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of cells, with the first column aligned left and the others right."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return ["  ".join([head.ljust(first), *map(str.rjust, cells, others)]).rstrip() for head, *cells in rows]


def short_number(value: float | None) -> str:
    """Return three digits, in thousands, millions or billions if that is shorter: `1.23M`; `-` for `None`."""
    if value is None:
        return "-"
    for sign, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def prefix_status(status: Status, doing: str) -> Status:
    """Return the status of a part: its lines start with `doing`."""
    status(doing)
    return lambda line: status(f"{doing}: {line}")
