"""Checking plain data, as YAML and the command line give it, against typed records."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

Record = TypeVar("Record")


class InvalidConfig(Exception):
    """A configuration names a key that does not exist, or gives one a value that it cannot have."""


def checked(kind: type[Record], content: object) -> Record:
    """Return plain data as a dataclass whose fields are values or dataclasses.

    A dataclass with a field `options` takes every key that is none of its fields as one of them.

    Raises:
        InvalidConfig: a key is unknown or missing, or a value is not what its annotation says.
    """
    return _record(kind, content, "", keys_of(kind))


def keys_of(kind: type[Any]) -> list[str]:
    """Every key of a dataclass with dots: `run.seed`; keys of `options` are not among them."""
    keys = []
    hints = typing.get_type_hints(kind)
    for each in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[each.name]):
            keys += [f"{each.name}.{key}" for key in keys_of(typing.cast("type[Any]", hints[each.name]))]
        elif each.name != "options":
            keys.append(each.name)
    return keys


def unknown_key(key: str, value: object, known: list[str]) -> InvalidConfig:
    """The error for a key that does not exist; it names what may have been meant."""
    section, _, leaf = key.rpartition(".")
    leaves = {each.rpartition(".")[2]: each for each in known}
    near = suggest(key, known) or suggest(leaf, leaves, leaves)
    siblings = [each for each in known if section and each.startswith(f"{section}.")]
    there_are = siblings or dict.fromkeys(each.partition(".")[0] for each in known)
    return InvalidConfig(
        f"there is no {key}{near}, given as {shown(value)}; there are {', '.join(there_are)}"
    )


def suggest(word: str, known: Iterable[str], names: Mapping[str, str] | None = None) -> str:
    """` (did you mean ...?)` with the nearest of the known words (as `names` calls it), or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {names[near[0]] if names else near[0]}?)" if near else ""


def shown(value: object) -> str:
    """A value as one writes it on a command line."""
    plain = isinstance(value, str) and value != "" and value.isprintable()
    return str(value) if plain else json.dumps(value, default=str)


def _record(kind: type[Record], content: object, prefix: str, known: list[str]) -> Record:
    if not isinstance(content, Mapping):
        raise InvalidConfig(f"{prefix[:-1] or 'a configuration'} must be a mapping, not {shown(content)}")
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [each for each in dataclasses.fields(kind) if each.name != "options"]  # type: ignore[arg-type]
    rest = {str(name): value for name, value in content.items()}
    values: dict[str, Any] = {}
    for each in fields:
        key = f"{prefix}{each.name}"
        if each.name in rest:
            value = rest.pop(each.name)
            if dataclasses.is_dataclass(hints[each.name]):
                values[each.name] = _record(hints[each.name], value, f"{key}.", known)
            else:
                values[each.name] = _value(hints[each.name], value, key)
        elif each.default is dataclasses.MISSING:
            raise InvalidConfig(f"{key} is not set")
    if "options" in hints:
        values["options"] = rest
    elif rest:
        name, value = next(iter(rest.items()))
        raise unknown_key(f"{prefix}{name}", value, known)
    return kind(**values)


def _value(annotation: Any, value: object, key: str) -> Any:
    try:
        converted = msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        raise InvalidConfig(f"{key} must be {_expected(annotation)}, not {shown(value)}") from None
    if isinstance(converted, float) and not math.isfinite(converted):  # a lower bound lets it pass
        raise InvalidConfig(f"{key} must be finite, not {shown(value)}")
    return converted


def _expected(annotation: Any) -> str:
    """What an annotation allows, in words: `int >= 0`, `float > 0 or null`, `debug or info`."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(_expected(each) for each in arguments)
    if typing.get_origin(annotation) is Literal:
        return " or ".join(arguments)
    if typing.get_origin(annotation) is Annotated:
        kind, meta = arguments
        bounds = {">=": meta.ge, ">": meta.gt, "<=": meta.le}
        limits = " and ".join(f"{sign} {bound}" for sign, bound in bounds.items() if bound is not None)
        return f"{kind.__name__} {limits}" if limits else f"non-empty {kind.__name__}"
    return "null" if annotation is types.NoneType else str(annotation.__name__)
