from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedrunner.store.files import StorageError
from speedrunner.store.json_records import UnknownFormat, append_record, find_end, read_records, repair
from speedrunner.store.records import Trajectory
from tests.processes import HANGS_S
from tests.speedrunner.run_samples import trajectory


class Note(msgspec.Struct):
    text: Any
    format: int = 1


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

    def test_at_every_length_the_whole_lines_are_read_kept_and_appended_to(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        content = self.lines(path, 3)
        for length in range(len(content) + 1):
            path.write_bytes(content[:length])
            whole = content[:length].count(b"\n")
            expected = [Note(f"nümber {number}") for number in range(whole)]
            assert read_records(path, Note) == expected
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

    def test_a_broken_line_in_the_middle_is_named(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        first, second, third = self.lines(path, 3).splitlines(keepends=True)
        path.write_bytes(first + second[:-5] + b"\n" + third)
        with pytest.raises(StorageError) as error:
            read_records(path, Note)
        assert f"{path}, line 2" in one_line(error)

    def test_an_unknown_format_is_told_apart_from_damage(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        append_record(path, Note("later", format=9), durable=False)
        with pytest.raises(UnknownFormat, match="format 9"):
            read_records(path, Note)
        path.write_bytes(b'{"renamed": 1, "format": 9}\n')
        with pytest.raises(UnknownFormat, match="format 9"):
            read_records(path, Note)


FILL = """
import sys
from pathlib import Path
from speedrunner.store.files import StorageError
from speedrunner.store.json_records import append_record, read_records
sys.path.insert(0, sys.argv[2])  # the checkout
from tests.speedrunner.store.test_json_records import Note
path = Path(sys.argv[1]) / "notes.jsonl"
appended = 0
try:
    while appended < 10_000:
        append_record(path, Note("x" * 5000), durable=False)
        appended += 1
except StorageError as error:
    print(error)
assert len(read_records(path, Note)) == appended, "a record was lost or half written"
assert path.read_bytes().endswith(b"\\n")
print(appended)
"""


def fill(folder: Path, preexec=None) -> tuple[str, int]:
    """Append in another process until the disk refuses; its message and how many records it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(folder), str(Path(__file__).parents[3])],
        capture_output=True,
        text=True,
        preexec_fn=preexec,
        timeout=HANGS_S,
    )
    assert done.returncode == 0, done.stderr
    *message, count = done.stdout.splitlines()
    assert len(message) == 1
    return message[0], int(count)


@pytest.mark.process
class TestFullDisk:
    def test_a_full_disk_keeps_what_was_recorded_and_says_what_to_do(self, small_disk):
        message, count = fill(small_disk)
        assert "disk is full" in message
        assert "free some space and run the same command again; nothing recorded was lost" in message
        assert count > 10
        assert len(read_records(small_disk / "notes.jsonl", Note)) == count

    def test_a_write_that_is_cut_short_is_undone(self, tmp_path):
        limit = 64_000
        message, count = fill(tmp_path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert "file size limit" in message
        assert count == limit // (5000 + len('{"text":"","format":1}\n'))
