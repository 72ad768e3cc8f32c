"""Records as JSON: their encoding, and a decoding that checks size and layout version."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from speedrunner.store.files import StorageError, read_content, write_atomic

Record = TypeVar("Record", bound=msgspec.Struct)

_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class UnknownFormat(StorageError):
    """A record has a layout that this version does not know."""


def read_record(path: Path, type_: type[Record]) -> Record:
    """Read a file of `write_record`. Raises `StorageError`, `UnknownFormat`."""
    return as_record(read_content(path), type_, path)


def as_record(content: bytes, type_: type[Record], where: Path | str) -> Record:
    """Decode a record; errors start with `where`. Raises the errors of `read_record`."""
    record: Record = make_decoder(type_)(content, str(where))
    return record


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that has no `format`. Raises `StorageError`."""
    content = read_content(path)
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except _NOT_JSON as error:
        raise StorageError(f"{path} is damaged: {error}") from error


def write_record(path: Path, record: msgspec.Struct) -> None:
    """Write or replace a file with one record, as `write_atomic` does. Raises `StorageError`."""
    write_atomic(path, format_record(record))


def format_record(record: msgspec.Struct) -> bytes:
    """Return a record as indented JSON."""
    return msgspec.json.format(encode(record), indent=2) + b"\n"


def encode(record: msgspec.Struct) -> bytes:
    """Return a record as JSON; a lone surrogate in its texts becomes `?`."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(record)))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value


class _Versioned(msgspec.Struct):
    """Any record, to read only its `format`."""

    format: int | None = None


@cache
def make_decoder(type_: type[Record]) -> Callable[[bytes, str], Record]:
    """Return a decoder that takes a record and its place, and checks its content and layout version."""
    plain = msgspec.json.Decoder(type_)
    defaults = {field.name: field.default for field in msgspec.structs.fields(type_)}
    known = defaults.get("format")

    def decode(line: bytes, where: str) -> Record:
        try:
            record = plain.decode(line)
            written = getattr(record, "format", None)
        except _NOT_JSON as error:
            try:
                written = msgspec.json.decode(line, type=_Versioned).format
            except _NOT_JSON:
                written = None
            if known is None or written in (None, known):
                raise StorageError(f"{where} is not a valid {type_.__name__}: {error}") from error
        if written != known:
            raise UnknownFormat(
                f"{where} has format {written}, but this version of SpeedRunner reads format {known}:"
                " use the version that wrote it"
            )
        return record

    return decode


def is_json(line: bytes) -> bool:
    """Return whether a line is JSON."""
    try:
        msgspec.json.decode(line, type=msgspec.Raw)  # creates no objects
    except _NOT_JSON:
        return False
    return True
