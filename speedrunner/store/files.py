"""Files that survive a kill, a full disk and a network file system: JSON lines, whole files, whole folders.

A line is one record, written by one append. An unfinished append leaves a *torn tail*: readers ignore it, and
`repair` cuts it off before the next append. Everything else is written under a temporary name in the same
folder and then renamed, so it exists completely or not at all. Only regular files are opened and links are
not followed. Created files are accessible to their owner only, except for those of `write_shared`.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from speedrunner.store.json_limits import DECODED_BYTES, TOO_DENSE, decoded_bytes, find_dense, find_excess

Record = TypeVar("Record", bound=msgspec.Struct)

RECORD_BYTES = 64 * 2**20
"""Maximum bytes of one record, a line or a whole file; longer ones are refused."""

_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_FILE_MODE, FOLDER_MODE, _SHARED_MODE = 0o600, 0o700, 0o666
_ADVICE = "run the same command again; nothing recorded was lost"
_REMEDIES = {
    errno.ENOSPC: f"the disk is full: free some space and {_ADVICE}",
    errno.EDQUOT: f"the disk quota is full: free some space and {_ADVICE}",
    errno.EFBIG: f"it would exceed the file size limit: raise the limit and {_ADVICE}",
    errno.ELOOP: "it is a link, which is not followed: replace it with its target",
    errno.EMLINK: "it is a hard link, so another file would change too: replace it with a copy",
    errno.ENXIO: "it is a folder, a pipe or a device, not a regular file",
    errno.EROFS: f"the file system is read-only: make it writable and {_ADVICE}",
}


class StorageError(Exception):
    """A file or folder could not be read or written, or has unexpected content."""


class UnknownFormat(StorageError):
    """A record has a layout that this version does not know."""


LeftOut = list[str] | None
"""Collects one line for each broken record that a reader left out; `None`: broken records are errors."""


@contextmanager
def explain_errors(path: Path, verb: str) -> Iterator[None]:
    """Turn an `OSError` into a one-line `StorageError`: `path` could not be `verb`, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} could not be {verb}: {reason(error)}") from error


def reason(error: OSError) -> str:
    """Return why the file system refused, and what to do if known."""
    return _REMEDIES.get(error.errno or 0) or (error.strerror or str(error)).lower()


def open_regular(path: Path, flags: int, mode: int = _FILE_MODE) -> int:
    """Open a file and return its descriptor. `os.O_CREAT` creates it, by default for its owner only.

    Raises:
        OSError: it cannot be opened, is a link, or is not a regular file; or it is opened for writing and has
            a second hard link, which would change with it.
    """
    with suppress(FileNotFoundError):
        # Opening a device already affects it: a tape rewinds, a watchdog starts.
        if not stat.S_ISREG(kind := os.lstat(path).st_mode) and not stat.S_ISLNK(kind):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    found = os.fstat(descriptor)
    problem = 0 if stat.S_ISREG(found.st_mode) else errno.ENXIO
    if flags & (os.O_RDWR | os.O_WRONLY) and found.st_nlink > 1:
        problem = problem or errno.EMLINK
    if problem:
        os.close(descriptor)
        raise OSError(problem, os.strerror(problem))
    return descriptor


def read_given(path: Path, limit: int = RECORD_BYTES) -> str:
    """Return the text of a file that the user named; it may be a link.

    Raises:
        OSError: it cannot be read, or is not a regular file.
        UnicodeDecodeError: it is not text.
        StorageError: it has more than `limit` bytes.
    """
    with os.fdopen(open_regular(Path(os.path.realpath(path)), os.O_RDONLY), "rb") as file:
        return file.read(_check_size(file, path, limit)).decode()


def make_folder(path: Path) -> None:
    """Create a folder for its owner only, if it is missing. Raises `StorageError`, also if it is a link."""
    with explain_errors(path, "made"):
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def read_content(path: Path, limit: int = RECORD_BYTES) -> bytes:
    """Return the content of a file of at most `limit` bytes. Raises `StorageError`."""
    with explain_errors(path, "read"), os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        size = _check_size(file, path, limit)
        return file.read(size)


def remove(path: Path) -> None:
    """Remove a file if it is there. Raises `StorageError`."""
    with explain_errors(path, "removed"):
        path.unlink(missing_ok=True)


def open_log(path: Path) -> BinaryIO:
    """Open a log file for appending. Raises `StorageError`."""
    with explain_errors(path, "written"):
        return os.fdopen(open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def append_record(path: Path, record: msgspec.Struct, *, durable: bool) -> int:
    """Append `record` as one line of JSON, completely or not at all. No other process may write the file.

    Args:
        path: the file, created if missing; its folder must exist.
        record: the record. A lone surrogate in its texts, which UTF-8 cannot encode, becomes `?`.
        durable: whether to wait until the line would also survive a power cut.

    Returns:
        The file's new length in bytes.

    Raises:
        StorageError: the write failed; the file has its old length again, if that was possible.
    """
    line = encode(record) + b"\n"
    size: int | None = None
    with explain_errors(path, "written"):
        descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            try:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    # After an append that failed and could not be undone: never append to its remains.
                    size -= repair(path)
                _write(descriptor, line)
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)  # network file systems report a full disk here
        except OSError:
            if size is not None:
                with (
                    explain_errors(path, "truncated to its last complete line"),
                    os.fdopen(open_regular(path, os.O_RDWR), "r+b") as file,
                ):
                    file.truncate(size)
            raise
        if durable and size == 0:
            sync_folder(path.parent)
    return size + len(line)


def read_records(path: Path, type_: type[Record], left_out: LeftOut = None) -> list[Record]:
    """Read a JSON-lines file. A missing file is empty, and a torn tail is left out.

    Args:
        left_out: see `leave_out`; `None`: a broken line is an error.

    Raises:
        StorageError: the file cannot be read, its records would take more than `DECODED_BYTES`, or a line
            other than the last is broken.
        UnknownFormat: a record's `format` is not the default of its type.
    """
    decode, room, found = _decoder(type_), DECODED_BYTES, list[Record]()
    for number, _, line in iterate_lines(path):
        room -= decoded_bytes(line, room)
        if room < 0:
            raise StorageError(f"{path}, line {number}: {TOO_DENSE}")
        try:
            found.append(decode(line, f"{path}, line {number},"))
        except StorageError as error:
            leave_out(error, left_out)
    return found


def iterate_records(path: Path, type_: type[Record], left_out: LeftOut = None) -> Iterator[Record]:
    """Yield the records of a JSON-lines file as `read_records` does, one at a time in memory and without
    limit.
    """
    decode = _decoder(type_)
    for number, _, line in iterate_lines(path):
        try:
            record = decode(line, f"{path}, line {number},")
        except StorageError as error:
            leave_out(error, left_out)
        else:
            yield record


def leave_out(error: StorageError, left_out: LeftOut) -> None:
    """Add a broken record's error to `left_out`, so that its reader can continue without the record.

    Raises the error if `left_out` is `None`, and `UnknownFormat` always: then another version wrote the file.
    """
    if left_out is None or isinstance(error, UnknownFormat):
        raise error
    if (line := f"{error} (this record is left out)") not in left_out:
        left_out.append(line)


def iterate_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number (from 1), start (in bytes) and text of each line of a JSON-lines file.

    A missing file has no lines, and a torn tail is left out. Raises `StorageError`, also if a line exceeds
    `RECORD_BYTES`.
    """
    lines = raw_lines(path)
    number, start, line = 1, 0, next(lines, None)
    while line is not None:
        following = next(lines, None)
        if following is None and not _is_json(line):
            return
        yield number, start, line
        number, start, line = number + 1, start + len(line) + 1, following


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a JSON-lines file verbatim, one at a time in memory. A missing file has none, and a
    torn tail is left out. Raises `StorageError`, also if a line exceeds `RECORD_BYTES`.
    """
    with explain_errors(path, "read"):
        try:
            descriptor = open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        with os.fdopen(descriptor, "rb") as file:
            for number in count(1):
                if not (line := file.readline(RECORD_BYTES + 1)):
                    return
                if len(line) > RECORD_BYTES:
                    raise StorageError(
                        f"{path}, line {number} has more than {RECORD_BYTES} bytes, the limit of a line"
                    )
                if line.endswith(b"\n"):
                    yield line[:-1]


def read_tail(path: Path, type_: type[Record], size: int) -> list[Record]:
    """Return the records in the last `size` bytes of a JSON-lines file that may be growing.

    A missing file is empty. Broken and unfinished lines are left out. Raises `StorageError`.
    """
    decode, found = _decoder(type_), list[Record]()
    with explain_errors(path, "read"):
        try:
            descriptor = open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            return found
        with os.fdopen(descriptor, "rb") as file:
            start = max(os.fstat(file.fileno()).st_size - size, 0)
            file.seek(start)
            lines = file.read(size).split(b"\n")
    for line in lines[1 if start else 0 : -1]:
        with suppress(StorageError):
            found.append(decode(line, str(path)))
    return found


def lines_at(path: Path, places: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield lines of an append-only file by their start and size in bytes. Raises `StorageError`."""
    with explain_errors(path, "read"), os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        for start, size in places:
            file.seek(start)
            yield file.read(size)


def read_record(path: Path, type_: type[Record], limit: int = RECORD_BYTES) -> Record:
    """Read a file of `write_atomic`, of at most `limit` bytes. Raises `StorageError`, `UnknownFormat`."""
    return as_record(read_content(path, limit), type_, path)


def as_record(content: bytes, type_: type[Record], where: Path | str) -> Record:
    """Decode a record; errors start with `where`. Raises the errors of `read_record`."""
    record: Record = _decoder(type_)(content, str(where))
    return record


def as_part(content: bytes, type_: type[Record], where: str) -> Record:
    """Decode some values of a record, skip the rest unchecked. Raises as `read_record` does."""
    _refuse(find_dense(content), where)
    record: Record = _part_decoder(type_)(content, where)
    return record


def read_json(path: Path, type_: Any = dict[str, Any], limit: int = RECORD_BYTES) -> Any:
    """Read a JSON file that has no `format`. Raises `StorageError`."""
    content = read_content(path, limit)
    check_content(content, str(path))
    try:
        return msgspec.json.decode(content, type=type_)
    except _NOT_JSON as error:
        raise StorageError(f"{path} is damaged: {error}") from error


def _check_size(file: BinaryIO, path: Path, limit: int) -> int:
    """Return the size of an open file. Raises `StorageError` if it exceeds `limit` bytes."""
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        raise StorageError(f"{path} has {size} bytes; at most {limit} are read")
    return size


def repair(path: Path) -> int:
    """Cut off a torn tail and return its length in bytes (0: the file was complete).

    The tail is everything after the last newline, even if it is valid JSON, because its append was never
    confirmed. It is also a last line that is not JSON (blocks lost in a power cut).
    """
    with explain_errors(path, "repaired"), os.fdopen(open_regular(path, os.O_RDWR), "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            end = content.rfind(b"\n") + 1
            if end:
                last_line = content.rfind(b"\n", 0, end - 1) + 1
                if not _is_json(content[last_line:end]):
                    end = last_line
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
        return size - end


def sync(path: Path) -> None:
    """Wait until the data appended to `path` would survive a power cut. A missing file is fine."""
    with (
        explain_errors(path, "written"),
        suppress(FileNotFoundError),
        os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file,
    ):
        os.fsync(file.fileno())


def write_shared(path: Path, content: bytes) -> None:
    """Write a file for other people as `write_atomic` does, with the permissions of the process's umask."""
    write_atomic(path, content, _SHARED_MODE)


def write_atomic(path: Path, content: bytes | msgspec.Struct, mode: int = _FILE_MODE) -> None:
    """Write or replace a whole file. A reader sees the old or the new content, never a part.

    Args:
        path: the file; its folder must exist.
        content: raw bytes, or a record (written as indented JSON).
        mode: the file's permissions, from which the umask is subtracted.

    Raises:
        StorageError: the write failed; the old content is unchanged.
    """
    if isinstance(content, msgspec.Struct):
        content = format_record(content)
    temporary = temporary_name(path)
    with explain_errors(path, "written"):
        if path.exists() and not path.is_file():
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))  # a device must not be replaced by a file
        try:
            temporary.unlink(missing_ok=True)
            with os.fdopen(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def format_record(record: msgspec.Struct) -> bytes:
    """Return a record in the format of `write_atomic`."""
    return msgspec.json.format(encode(record), indent=2) + b"\n"


def publish_folder(temporary: Path, final: Path) -> None:
    """Give a finished folder its final name; it must not be changed afterwards.

    Raises:
        StorageError: the rename failed, or `final` already exists.
    """
    with explain_errors(final, "written"):
        for path in temporary.rglob("*"):
            if path.is_dir():
                sync_folder(path)
            else:
                sync(path)
        sync_folder(temporary)
        if final.exists():
            raise FileExistsError(errno.EEXIST, "it already exists and is never changed")
        temporary.rename(final)
        sync_folder(final.parent)


def temporary_name(path: Path) -> Path:
    """Return the temporary name for preparing `path` in the same folder; `remove_leftovers` recognizes it."""
    return path.with_name(f".{path.name}.tmp")


def is_leftover(path: Path) -> bool:
    """Return whether `path` is a temporary name."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def remove_leftovers(folder: Path) -> None:
    """Remove a killed process's temporary files in `folder` and one level below it."""
    with explain_errors(folder, "tidied"):
        folders = [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]
        for path in [*folder.iterdir(), *(path for each in folders for path in each.iterdir())]:
            if not is_leftover(path):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


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
def _decoder(type_: type[Record]) -> Callable[[bytes, str], Record]:
    """Return a decoder that takes a record and its place, and checks its content and layout version."""
    decode_part = _part_decoder(type_)

    def decode(line: bytes, where: str) -> Record:
        check_content(line, where)
        record: Record = decode_part(line, where)
        return record

    return decode


@cache
def _part_decoder(type_: type[Record]) -> Callable[[bytes, str], Record]:
    """Return the same decoder for a type without the fields of any content, which are skipped unchecked."""
    decoder = msgspec.json.Decoder(type_)
    defaults = {field.name: field.default for field in msgspec.structs.fields(type_)}
    known = defaults.get("format")

    def decode(line: bytes, where: str) -> Record:
        try:
            record = decoder.decode(line)
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


def check_content(text: bytes, where: str) -> None:
    """Raise `StorageError` if a JSON text exceeds a limit of `speedrunner.store.json_limits`."""
    _refuse(find_excess(text), where)


def _refuse(problem: str, where: str) -> None:
    """Raise `StorageError` if there is a problem."""
    if problem:
        raise StorageError(f"{where} {problem}")


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)  # creates no objects
    except _NOT_JSON:
        return False
    return True


def _write(descriptor: int, line: bytes) -> None:
    """Write all of `line`. A partial write is retried for the error that explains it."""
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder would survive a power cut. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems need no sync of folders
            raise
    finally:
        os.close(descriptor)
