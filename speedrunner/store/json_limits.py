"""Limits of memory and depth for JSON texts, checked before a text is decoded."""

from __future__ import annotations

import re
from itertools import accumulate, count
from operator import sub

DECODED_BYTES = 192 * 2**20
"""Maximum bytes of memory of one record, or of all records of a list; see `decoded_bytes`.

A genuine record takes two or three times its length. The densest record that a run can write, of calls with
lists of empty objects as results, takes 168 MB by this count.
"""

LEVELS = 300
"""Maximum depth of lists and objects in one record. Call trees of 100 levels with their values take 230."""


def find_excess(text: bytes) -> str:
    """Return which limit a JSON text exceeds, as the end of a sentence; "" if none.

    A text within the limits can be decoded by any recursive decoder, not only by `msgspec`.
    """
    if problem := find_dense(text):
        return problem
    if text.count(b"[") + text.count(b"{") <= LEVELS:
        return ""
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_BRACKETS)
    brackets = b"".join(unescaped.split(b'"')[::2]).translate(_STEPS)
    # Each level is one too high, as bytes cannot be negative.
    deepest = max(map(sub, accumulate(brackets), count(1)), default=0)
    return f"nests lists and objects on more than {LEVELS} levels" if deepest > LEVELS else ""


def find_dense(text: bytes) -> str:
    """Return `TOO_DENSE` if a JSON text would take more memory than `DECODED_BYTES`, otherwise ""."""
    is_dense = len(text) * _MOST > DECODED_BYTES and decoded_bytes(text, DECODED_BYTES) > DECODED_BYTES
    return TOO_DENSE if is_dense else ""


def decoded_bytes(text: bytes, enough: int) -> int:
    """Return the maximum memory of a JSON text after decoding, in bytes.

    The count happens before decoding: two bytes of JSON may take eighty of memory. A fast estimate that also
    counts characters within strings comes first. Only if it exceeds `enough`, strings are taken out.
    """
    # A string with one wide character takes four bytes for each character.
    size = len(text) * (1 if text.isascii() else 4)
    most = size + _count_cost(text)
    return most if most <= enough else size + _count_cost(_STRING.sub(b"", text))


def _count_cost(text: bytes) -> int:
    return sum(cost * text.count(sign) for sign, cost in _COSTS.items())


_COSTS = {b",": 64, b":": 60, b"[": 80, b"{": 130}
"""Bytes of memory for each list, object, object member and further value, measured on 64-bit Python and
rounded up.
"""

_MOST = 4 + max(_COSTS.values())
"""Maximum bytes of memory for one byte of JSON."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)

TOO_DENSE = f"would take more than {DECODED_BYTES} bytes of memory, the limit"
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = bytes.maketrans(b"[{]}", b"\2\2\0\0")
