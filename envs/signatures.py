"""Checking values against type annotations: an environment's options and a primitive's arguments."""

from __future__ import annotations

import inspect
import reprlib
from typing import Any

import msgspec


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
        expected = inspect.formatannotation(annotation)
        raise ValueError(f"must be {expected}, not {reprlib.repr(value)}") from None
