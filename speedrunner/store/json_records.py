"""Records as JSON: one in a file, or one in each line of a file that grows.

Reading checks size and layout version. A line is one record, written by one append. An unfinished append
leaves a *torn tail*: readers ignore it, and `repair` cuts it off before the next append.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from speedrunner.store.files import (
    FILE_MODE,
    RECORD_BYTES,
    StorageError,
    explain_errors,
    read_content,
    sync_folder,
    write_all,
    write_atomic,
)

BUFFER = 2**20
"""Bytes that a reader of lines asks for at once. Lines have up to hundreds of kilobytes."""

RecordType = TypeVar("RecordType", bound=msgspec.Struct)

_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class UnknownFormat(StorageError):
    """A record has a layout that this version does not know."""


def read_record(path: Path, type_: type[RecordType]) -> RecordType:
    """Read a file of `write_record`. Raises `StorageError`, `UnknownFormat`."""
    record: RecordType = make_decoder(type_)(read_content(path), str(path))
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
def make_decoder(type_: type[RecordType]) -> Callable[[bytes, str], RecordType]:
    """Return a decoder that takes a record and its place, with which errors start. It checks content and
    layout version, and raises the errors of `read_record`."""
    plain = msgspec.json.Decoder(type_)
    defaults = {field.name: field.default for field in msgspec.structs.fields(type_)}
    known = defaults.get("format")

    def decode(line: bytes, where: str) -> RecordType:
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
                " use the version that wrote it, or play it again"
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


def append_record(path: Path, record: msgspec.Struct, *, durable: bool) -> None:
    """Append `record` as one line of JSON, completely or not at all. No other process may write the file.

    Args:
        path: the file, created if missing; its folder must exist.
        record: the record. A lone surrogate in its texts, which UTF-8 cannot encode, becomes `?`.
        durable: whether to wait until the line would also survive a power cut.

    Raises `StorageError`: the write failed; the file has its old length again, if that was possible.
    """
    line = encode(record) + b"\n"
    size: int | None = None
    with explain_errors(path, "written"):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, FILE_MODE)
        try:
            try:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    # After an append that failed and could not be undone: never append to its remains.
                    size -= repair(path)
                write_all(descriptor, line)
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)  # network file systems report a full disk here
            if durable and size == 0:
                sync_folder(path.parent)
        except OSError:
            if size is not None:
                with explain_errors(path, "truncated to its last complete line"):
                    os.truncate(path, size)
            raise


def read_records(path: Path, type_: type[RecordType]) -> list[RecordType]:
    """Read a JSON-lines file. A missing file is empty, and a torn tail is left out.

    Raises:
        StorageError: the file cannot be read, or a line other than the last is broken.
        UnknownFormat: a record's `format` is not the default of its type.
    """
    return list(iterate_records(path, type_))


def iterate_records(path: Path, type_: type[RecordType]) -> Iterator[RecordType]:
    """Yield the records of a JSON-lines file as `read_records` does, one at a time in memory."""
    decode = make_decoder(type_)
    for number, _, line in iterate_lines(path):
        yield decode(line, f"{path}, line {number},")


def iterate_blocks(
    path: Path, part: type[RecordType], whole: type[msgspec.Struct]
) -> Iterator[list[RecordType]]:
    """Yield the records of a JSON-lines file of `whole` as `iterate_records` does, but several at a time,
    which takes less time.

    Args:
        part: a type that decodes less, and whose `format` is a literal.
    """
    decoder = msgspec.json.Decoder(part)
    if not path.exists():
        return
    with explain_errors(path, "read"), path.open("rb") as file:
        left = find_end(file, os.fstat(file.fileno()).st_size)
        file.seek(0)
        while left:
            block = file.read(min(left, BUFFER))
            block += file.readline(min(left - len(block), RECORD_BYTES))
            left -= len(block)
            try:
                records = decoder.decode_lines(block)
            except _NOT_JSON:
                records = []
            if len(records) != block.count(b"\n"):
                read_records(path, whole)  # names the line
                raise StorageError(f"{path} has a line without a record: copy the whole run again")
            yield records


def iterate_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number (from 1), start (in bytes) and text of each line of a JSON-lines file, one at a time
    in memory.

    A missing file has no lines, and a torn tail is left out. Raises `StorageError`, also if a line exceeds
    `RECORD_BYTES`.
    """
    with explain_errors(path, "read"):
        try:
            opened = path.open("rb", BUFFER)
        except FileNotFoundError:
            return
        with opened as file:
            start, line = 0, file.readline(RECORD_BYTES + 1)
            for number in count(1):
                if len(line) > RECORD_BYTES:
                    raise StorageError(
                        f"{path}, line {number} has more than {RECORD_BYTES} bytes, the limit of a line"
                    )
                following = file.readline(RECORD_BYTES + 1)
                if not line.endswith(b"\n") or not (following.endswith(b"\n") or is_json(line)):
                    return
                yield number, start, line[:-1]
                start, line = start + len(line), following


def count_lines(path: Path) -> int:
    """Return the number of complete lines of a file, without decoding them. Raises `StorageError`."""
    with explain_errors(path, "read"), path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(partial(file.read, BUFFER), b""))


def lines_at(path: Path, places: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield lines of an append-only file by their start and size in bytes. Raises `StorageError`."""
    with explain_errors(path, "read"), path.open("rb") as file:
        for start, size in places:
            file.seek(start)
            yield file.read(size)


def repair(path: Path) -> int:
    """Cut off a torn tail and return its length in bytes (0: the file was complete).

    The tail is everything after the last newline, even if it is valid JSON, because its append was never
    confirmed. It is also a last line that is not JSON (blocks lost in a power cut).
    """
    with explain_errors(path, "repaired"), path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        end = find_end(file, size)
        if end < size:
            os.ftruncate(file.fileno(), end)
            os.fsync(file.fileno())
        return size - end


def find_end(file: BinaryIO, size: int) -> int:
    """Return where the torn tail in the first `size` bytes of a file begins; `size` if there is none.

    The file is read, not mapped: a disk error in a mapped page kills the process. Raises `OSError`.
    """
    for window in (2**16, 2**20, 2 * RECORD_BYTES):
        start = max(size - window, 0)
        file.seek(start)
        tail = file.read(size - start)
        end = tail.rfind(b"\n") + 1
        last = tail.rfind(b"\n", 0, end - 1) + 1
        if last or not start:
            return start + (end if is_json(tail[last:end]) else last)
    return size  # readers refuse so long a line
