"""Checking values against type annotations: an environment's options and a primitive's arguments."""

from __future__ import annotations

import inspect
import reprlib
import types
import typing
from typing import Any

import msgspec

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def shown(value: object) -> str:
    """Return a value as an error's text shows it: what is long is shortened."""
    return _SHOWN.repr(value)


def converted(value: object, annotation: Any) -> Any:
    """Return the value as its annotation's type (an int may stand for a float).

    Args:
        value: what was given.
        annotation: int, float, bool, str, a `Literal`, a container or a union of these.

    Raises:
        ValueError: it is of another type; the text reads on after the name of what was given.
    """
    if annotation is inspect.Parameter.empty:
        return value
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        raise ValueError(f"must be {_in_words(annotation)}, not {shown(value)}") from None


def _in_words(annotation: Any) -> str:
    """Say what an annotation allows, as people write it."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(map(str, inner))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_in_words, inner))
    return "None" if annotation is types.NoneType else inspect.formatannotation(annotation)
