"""Text on a terminal: from outside, in columns, and as the status of long work."""

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
    r"\u061c\u202a-\u202e"  # directions of writing
    r"\xad\u180e\u200b-\u200f\u2060-\u206f\ufeff\U000e0000-\U000e0fff"  # what no one sees, and directions
    r"\u2028\u2029\ud800-\udfff]"  # ends of lines and of paragraphs; half characters
)


def visible(text: str) -> str:
    """`text` with control characters other than tab and newline written out, so that no skill, game or log
    can steer the terminal on which it is shown, or show there what it does not say."""
    return _CONTROL.sub(lambda found: _written(ord(found.group())), text)


def json_text(value: Any) -> str:
    """Return JSON in one line, with the same characters escaped, so that it can be printed as it is."""
    text = msgspec.json.encode(value).decode()
    return _CONTROL.sub(lambda found: json.dumps(found.group())[1:-1], text)


def _written(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of cells, those of the first column flush left and the others flush right."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return ["  ".join([head.ljust(first), *map(str.rjust, cells, others)]).rstrip() for head, *cells in rows]


def within(status: Status, doing: str) -> Status:
    """Return the status of a part: its lines begin with `doing`."""
    status(doing)
    return lambda line: status(f"{doing}: {line}")
