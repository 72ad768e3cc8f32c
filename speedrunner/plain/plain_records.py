"""Records, options and arguments created from plain data, as in YAML, on command lines and in calls.

Their types are described in one way. Each error in the data is one line.
"""

from __future__ import annotations

import csv
import inspect
import json
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from speedrunner.plain.console import shorten

Record = TypeVar("Record", bound=msgspec.Struct)

SHOWN_PROBLEMS = 10
"""Number of problems that a message shows."""


def read_table(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file of this program, without empty cells."""
    with file.open(newline="", encoding="utf-8") as lines:
        return [{column: text for column, text in row.items() if text} for row in csv.DictReader(lines)]


class WrongData(ValueError):
    """Data lacks a key, has an unknown key, or has an invalid value.

    Args:
        problems: all problems, at least one; several are numbered, and the first ones shown.
    """

    def __init__(self, *problems: str) -> None:
        shown = [f"({number}) {problem}" for number, problem in enumerate(problems, start=1)]
        more = [f"and {len(shown) - SHOWN_PROBLEMS} more"] * (len(shown) > SHOWN_PROBLEMS)
        numbered = "; ".join(shown[:SHOWN_PROBLEMS] + more)
        super().__init__(problems[0] if len(problems) == 1 else numbered)


def record(kind: type[Record], content: object) -> Record:
    """Return plain data as a record, which may contain records, lists and mappings.

    Raises `WrongData`: with each key's dotted path, its value, and the allowed values.
    """
    if problems := list(_problems(kind, content, "", keys_of(kind))):
        raise WrongData(*problems)
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:  # such as a number as a mapping's key
        raise WrongData(str(error).replace("`", "")) from None


_fields = cache(msgspec.structs.fields)


def keys_of(kind: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """Return every key of a record and of the records in it, with dots: `run.seed`."""
    keys = []
    for field in _fields(kind):
        key = f"{prefix}{field.name}"
        keys += keys_of(field.type, f"{key}.") if _is_record(field.type) else [key]
    return keys


def unknown_key(key: str, value: object, known: Sequence[str]) -> str:
    """Return a message about a key that does not exist, with the nearest key, or else all keys there."""
    key = shorten(as_written(key))
    section, _, leaf = key.rpartition(".")
    leaves = {name.rpartition(".")[2]: name for name in known}
    nearest = get_close_matches(key, known, n=1) or get_close_matches(leaf, leaves, n=1)
    unknown = f"unknown key `{key}` (={shorten(as_written(value))})"
    if nearest:
        return f"{unknown}. Did you mean `{leaves.get(nearest[0], nearest[0])}`?"
    siblings = [name for name in known if section and name.startswith(f"{section}.")]
    names = siblings or dict.fromkeys(name.partition(".")[0] for name in known)
    return f"{unknown}. Known keys: {', '.join(names)}"


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest of the known words, or the beginning of this one."""
    names = list(known)
    near = get_close_matches(word, names, n=1) or [name for name in names if name and word.startswith(name)]
    return f" (did you mean {near[0]}?)" if near else ""


def as_written(value: object) -> str:
    """Return a value as users write it in YAML and on a command line."""
    plain = isinstance(value, str) and value != "" and value.isprintable()
    return str(value) if plain else json.dumps(value, default=str)


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _problems(kind: Any, value: object, place: str, known: Sequence[str]) -> Iterator[str]:
    origin = get_origin(kind)
    if isinstance(value, Mapping) and origin in (Union, UnionType):
        kind = next(filter(_is_record, get_args(kind)), kind)
    if _is_record(kind) and isinstance(value, Mapping):
        yield from _field_problems(kind, value, f"{place}." if place else "", known)
    elif origin is list and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _problems(get_args(kind)[0], item, f"{place}[{number}]", known)
    elif origin is dict and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _problems(get_args(kind)[1], item, f"{place}.{key}", known)
    else:
        yield from _value_problems(kind, value, place or "all of it")


def _field_problems(
    kind: type[msgspec.Struct], content: Mapping[Any, Any], prefix: str, known: Sequence[str]
) -> Iterator[str]:
    fields = {field.name: field for field in _fields(kind)}
    for key, value in content.items():
        if key not in fields:
            beside = dict.fromkeys([*known, *(f"{prefix}{name}" for name in fields)])
            yield unknown_key(f"{prefix}{key}", value, list(beside))
    for name, field in fields.items():
        if name in content:
            yield from _problems(field.type, content[name], f"{prefix}{name}", known)
        elif field.required:
            yield f"{prefix}{name} is missing"


def _value_problems(kind: Any, value: object, place: str) -> Iterator[str]:
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        yield f"{place} must be {describe_type(kind)} (got {shorten(as_written(value))})"
    else:
        if isinstance(converted, float) and not math.isfinite(converted):  # a lower bound accepts it
            yield f"{place} must be finite (got {shorten(as_written(value))})"


NOUNS = {int: "an integer", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
"""Types of values in the words of people who write YAML."""

PYTHON_NOUNS = {int: "int", float: "float", str: "str", bool: "bool", NoneType: "None"}
"""The same types in the words of people and models who write Python."""


def describe_type(kind: Any, nouns: Mapping[type, str] = NOUNS) -> str:
    """Return what a type accepts: `an integer, at least 1`, `slow or fast`, `a list or null`."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        words = [describe_type(option, nouns) for option in inner]
        separator = ", or " if any("," in option for option in words) else " or "
        return separator.join(words)
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin is Annotated:
        base, meta = inner
        if meta.description is not None:
            return str(meta.description)
        bounds = {"at least": meta.ge, "more than": meta.gt, "at most": meta.le}
        limits = [f"{words} {bound}" for words, bound in bounds.items() if bound is not None]
        return ", ".join([nouns[base], *limits]) if limits else f"non-empty {nouns[base]}"
    if origin is list:
        return "a list"
    if origin is dict or _is_record(kind):
        return "a mapping"
    return nouns.get(kind) or inspect.formatannotation(kind)


def convert_value(value: object, annotation: Any) -> Any:
    """Return the value of an option or argument as its annotation's type (an int is accepted for a float).

    Args:
        annotation: int, float, bool, str, a `Literal`, a container or a union of these.

    Raises:
        ValueError: it is of another type; the text continues a sentence that starts with the value's name.
    """
    if annotation is inspect.Parameter.empty:
        return value
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        allowed = describe_type(annotation, PYTHON_NOUNS)
        raise ValueError(f"must be {allowed}, not {format_value(value)}") from None


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def format_value(value: object) -> str:
    """Return a value as Python writes it; a long one is shortened."""
    return _SHOWN.repr(value)


def shown_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return keys with different values, each as a line: `key: OLD -> NEW`."""
    return [
        f"{key}: {_show_path(before, key)} -> {_show_path(after, key)}"
        for key in {**before, **after}
        if key not in before or key not in after or before[key] != after[key]
    ]


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with keys joined by dots."""
    flattened: dict[str, Any] = {}
    for key, value in content.items():
        flattened |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
        )
    return flattened


def _show_path(values: Mapping[str, Any], key: str) -> str:
    return as_written(values[key]) if key in values else "(not set)"
