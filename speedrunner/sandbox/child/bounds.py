"""What a skill may import, and how much a tool call may say and record.

The child keeps to the latter to save work, the worker enforces it.
"""

from __future__ import annotations

import re

ALLOWED_MODULES = (
    *("collections", "copy", "dataclasses", "enum", "functools", "heapq", "itertools", "json", "math"),
    *("operator", "random", "re", "statistics", "string", "typing"),
)
"""Modules that skills may import; the library sees to it."""

NODE_LIMIT = 20_000
"""Recorded calls of one tool call. The worker records as many calls beside them that advance the world."""

DEPTH_LIMIT = 100
"""Levels of recorded calls; what runs deeper is recorded under the deepest recorded call."""

TEXT_LIMIT = 4_000_000
"""Characters of arguments and results of one tool call that are kept whole; see `VALUE_CHARS`."""

VALUE_LIMIT = 1_000_000
"""Characters of one argument or result that is kept whole, as it goes from the child to the worker."""

VALUE_CHARS = 20
"""Characters that a value counts beside its own text, whatever it is: it takes as much work and memory."""

ERROR_CHARS = 1_000
"""Characters of the line that says what a piece of code raised."""

MESSAGE_LIMIT = 2 * 2**20
"""Bytes that one message of the child may have."""

TOKEN_LIMIT = 250_000
"""Strings, brackets and commas that it may have: what `VALUE_LIMIT` lets through, and some more."""

NESTING_LIMIT = 100
"""Levels of lists and objects that it may have."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)


def excess(body: bytes) -> str | None:
    """Say what a message has too much of, before it is decoded, which could take long; `None`: nothing."""
    if len(body) > MESSAGE_LIMIT:
        return f"{len(body)} bytes; {MESSAGE_LIMIT} are allowed"
    if len(body) <= TOKEN_LIMIT and body.count(b"[") + body.count(b"{") <= NESTING_LIMIT:
        return None
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(body)):
        opens = body[token.start()]
        depth += (opens in b"[{") - (opens in b"]}")
        if depth > NESTING_LIMIT:
            return f"values within values on more than {NESTING_LIMIT} levels"
        if count > TOKEN_LIMIT:
            return f"more than {TOKEN_LIMIT} strings, brackets and commas"
    return None
