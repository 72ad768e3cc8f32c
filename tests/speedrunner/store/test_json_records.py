from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedrunner.store.files import StorageError
from speedrunner.store.json_records import (
    UnknownFormat,
    append_record,
    find_end,
    iterate_blocks,
    read_records,
    repair,
)
from speedrunner.store.records import Trajectory
from tests.speedrunner.run_samples import trajectory


class Note(msgspec.Struct):
    text: Any
    format: int = 1


class StoredNote(Note):
    format: Literal[1] = 1  # type: ignore[assignment]


def read_blocks(path: Path, type_: type[Note]) -> list[Note]:
    return [Note(record.text) for block in iterate_blocks(path, StoredNote, type_) for record in block]


READ = pytest.mark.parametrize("read", [read_records, read_blocks])


def one_line(error: pytest.ExceptionInfo) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


class TestAppendAndRead:
    @given(values=st.lists(json_values, max_size=5))
    def test_records_read_back_as_they_were_written(self, values):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "notes.jsonl"
            for value in values:
                append_record(path, Note(value), durable=False)
            assert read_records(path, Note) == [Note(value) for value in values]
            assert path.read_bytes().count(b"\n") == len(values) if values else not path.exists()

    def test_a_lone_surrogate_does_not_stop_a_run(self, tmp_path):
        path = tmp_path / "t.jsonl"
        append_record(path, trajectory(text="a\ud800b"), durable=False)
        assert read_records(path, Trajectory)[0] == trajectory(text="a?b")


class TestTornTails:
    def lines(self, path: Path, count: int) -> bytes:
        for number in range(count):
            append_record(path, Note(f"nümber {number}"), durable=False)
        return path.read_bytes()

    @READ
    def test_at_every_length_the_whole_lines_are_read_kept_and_appended_to(self, read, tmp_path):
        path = tmp_path / "notes.jsonl"
        content = self.lines(path, 3)
        for length in range(len(content) + 1):
            path.write_bytes(content[:length])
            whole = content[:length].count(b"\n")
            expected = [Note(f"nümber {number}") for number in range(whole)]
            assert read(path, Note) == expected
            cut = repair(path)
            assert path.read_bytes() == content[: length - cut]
            assert repair(path) == 0
            append_record(path, Note("next"), durable=False)
            assert read_records(path, Note) == [*expected, Note("next")]

    def test_a_last_line_that_is_no_json_is_dropped_and_cut(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        content = self.lines(path, 2)
        path.write_bytes(content + b'{"text": "x\0\0\0\0\n')
        assert len(read_records(path, Note)) == 2
        assert repair(path) == 16
        assert path.read_bytes() == content

    @pytest.mark.parametrize("length", [10, 2**16, 2**20 + 1])
    def test_the_tail_behind_a_long_line_is_found(self, length, tmp_path):
        path = tmp_path / "notes.jsonl"
        append_record(path, Note("x" * length), durable=False)
        content = path.read_bytes()
        path.write_bytes(content + b'{"text": 1')
        assert repair(path) == 10
        assert path.read_bytes() == content

    def test_a_disk_error_is_an_error_and_does_not_kill_the_process(self):
        # Mapped pages that cannot be read give SIGBUS. This file gives EIO.
        with Path("/proc/self/mem").open("rb") as file, pytest.raises(OSError, match="Input/output error"):
            find_end(file, 100)

    @READ
    def test_a_broken_line_in_the_middle_is_named(self, read, tmp_path):
        path = tmp_path / "notes.jsonl"
        first, second, third = self.lines(path, 3).splitlines(keepends=True)
        path.write_bytes(first + second[:-5] + b"\n" + third)
        with pytest.raises(StorageError) as error:
            read(path, Note)
        assert f"{path}, line 2" in one_line(error)

    @READ
    @pytest.mark.parametrize("joint", [b"\n\n", b" "], ids=["a blank line", "two records on a line"])
    def test_a_line_has_one_record(self, read, joint, tmp_path):
        path = tmp_path / "notes.jsonl"
        first, second, third = self.lines(path, 3).splitlines()
        path.write_bytes(first + b"\n" + second + joint + third + b"\n" + first + b"\n")
        with pytest.raises(StorageError) as error:
            read(path, Note)
        assert f"{path}, line " in one_line(error)

    @READ
    def test_an_unknown_format_is_told_apart_from_damage(self, read, tmp_path):
        path = tmp_path / "notes.jsonl"
        append_record(path, Note("later", format=9), durable=False)
        with pytest.raises(UnknownFormat, match="format 9"):
            read(path, Note)
        path.write_bytes(b'{"renamed": 1, "format": 9}\n')
        with pytest.raises(UnknownFormat, match="format 9"):
            read_records(path, Note)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, which is what a full disk does, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_is_cut_short_is_undone_and_says_what_to_do(tmp_path):
    path, note = tmp_path / "notes.jsonl", Note("x" * 5000)
    fitting = 64_000 // (len(note.text) + len('{"text":"","format":1}\n'))
    with file_size_limit(64_000):
        for _ in range(fitting):
            append_record(path, note, durable=False)
        with pytest.raises(StorageError, match="file size limit") as error:
            append_record(path, note, durable=False)
    assert one_line(error).endswith("run the same command again; nothing recorded was lost")
    assert read_records(path, Note) == [note] * fitting
    assert path.read_bytes().endswith(b"\n")
