"""Check values of options and arguments against their annotations, and describe both in words."""

from __future__ import annotations

import inspect
import reprlib
import types
import typing
from typing import Annotated, Any, Literal

import msgspec

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def format_value(value: object) -> str:
    """Return a value as Python writes it; a long one is shortened."""
    return _SHOWN.repr(value)


def convert_value(value: object, annotation: Any) -> Any:
    """Return the value as its annotation's type (an int is accepted for a float).

    Args:
        value: the given value.
        annotation: int, float, bool, str, a `Literal`, a container or a union of these.

    Raises:
        ValueError: it is of another type; the text continues a sentence that starts with the value's name.
    """
    if annotation is inspect.Parameter.empty:
        return value
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        raise ValueError(f"must be {_describe(annotation)}, not {format_value(value)}") from None


def _describe(annotation: Any) -> str:
    """Return what an annotation allows, in Python's words: `int >= 0`, `float or None`, `slow or fast`."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(each) for each in inner)
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin is Annotated:
        kind, meta = inner
        bounds = {">=": meta.ge, ">": meta.gt, "<=": meta.le}
        limits = " and ".join(f"{sign} {bound}" for sign, bound in bounds.items() if bound is not None)
        return f"{kind.__name__} {limits}" if limits else f"non-empty {kind.__name__}"
    if origin is list:
        return "a list"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)):
        return "a mapping"
    return "None" if annotation is types.NoneType else inspect.formatannotation(annotation)
