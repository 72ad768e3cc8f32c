"""Text from outside on a person's terminal."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """`text` with control characters other than tab and newline written out, so that no skill, game or log
    can steer the terminal on which it is shown."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
