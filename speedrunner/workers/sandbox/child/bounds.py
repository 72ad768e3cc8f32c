"""Bounds on what a tool call may send and record.

The child follows these bounds to save work. The worker enforces them.
"""

from __future__ import annotations

import re

NODE_LIMIT = 20_000
"""Recorded calls of one tool call. The worker records as many further calls that advance the world."""

DEPTH_LIMIT = 100
"""Levels of recorded calls; deeper calls are recorded under the deepest recorded one."""

TEXT_LIMIT = 4_000_000
"""Characters of arguments and results of one tool call that are kept whole; see `VALUE_CHARS`."""

VALUE_LIMIT = 1_000_000
"""Characters of one argument or result that is sent whole from the child to the worker."""

VALUE_CHARS = 20
"""Characters that every value counts in addition to its text, for its work and memory."""

ERROR_CHARS = 1_000
"""Characters of the error line of a piece of code."""

MESSAGE_LIMIT = 2 * 2**20
"""Most bytes of one message of the child."""

TOKEN_LIMIT = 250_000
"""Strings, brackets and commas in one message: as many as `VALUE_LIMIT` allows, and some more."""

NESTING_LIMIT = 100
"""Levels of lists and objects in one message."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)


def excess(body: bytes) -> str | None:
    """Return which bound a message exceeds, or `None`. It runs before the message is decoded, since that
    could take long."""
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
