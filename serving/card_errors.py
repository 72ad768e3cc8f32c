"""What to tell people about a card that msgspec refuses."""

from __future__ import annotations

import difflib
import re
import typing
from typing import Any

import msgspec

_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(.*)`")
_KEY = re.compile(r"[^.\[\]]+")


def explain(message: str, content: Any, kind: type[msgspec.Struct]) -> str:
    """msgspec's message, led by the place in the file and with the given value or the known fields.

    Args:
        content: what was to become a record of `kind`.
    """
    match = _PLACE.match(message)
    assert match is not None
    what, place = match["what"], match["place"] or ""
    keys = _KEY.findall(place)
    if unknown := _UNKNOWN.search(what):
        known = list(_struct_at(keys, kind).__struct_fields__)
        name = f"{place}.{unknown[1]}" if place else unknown[1]
        return f"{name}: unknown field{suggest(unknown[1], known)}; known: {', '.join(known)}"
    if "missing required field" not in what and "..." not in place:
        for key in keys:
            content = content[int(key)] if isinstance(content, list) else content[key]
        what += f" (given: {content!r})"
    return f"{place or 'the card'}: {what.replace('`', '')}"


def suggest(word: str, known: list[str]) -> str:
    """` (did you mean ...?)` with the nearest of the known words, or nothing."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _struct_at(keys: list[str], kind: Any) -> type[msgspec.Struct]:
    """The record type at the end of a path through records and lists of them."""
    for key in keys:
        if key.isdigit():
            (kind,) = typing.get_args(kind)
        else:
            kind = next(field.type for field in msgspec.structs.fields(kind) if field.name == key)
    return typing.cast("type[msgspec.Struct]", kind)
