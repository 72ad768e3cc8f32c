from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speedrunner.store.files import (
    StorageError,
    UnknownFormat,
    append_record,
    iterate_records,
    open_log,
    publish_folder,
    read_content,
    read_record,
    read_records,
    read_tail,
    remove,
    remove_leftovers,
    repair,
    temporary_name,
    write_atomic,
)
from speedrunner.store.json_limits import DECODED_BYTES
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
    def test_a_missing_file_holds_no_records(self, tmp_path):
        assert read_records(tmp_path / "none.jsonl", Note) == []

    @settings(max_examples=50, deadline=None)
    @given(values=st.lists(json_values, max_size=5))
    def test_records_read_back_as_they_were_written(self, values):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "notes.jsonl"
            for value in values:
                append_record(path, Note(value), durable=False)
            assert read_records(path, Note) == [Note(value) for value in values]
            assert path.read_bytes().count(b"\n") == len(values) if values else not path.exists()

    def test_a_trajectory_reads_back_with_all_its_parts(self, tmp_path):
        path = tmp_path / "t.jsonl"
        append_record(path, trajectory(), durable=True)
        assert read_records(path, Trajectory) == [trajectory()]

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

    def test_a_record_is_never_glued_to_an_unrepaired_tail(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        content = self.lines(path, 2)
        for length in range(len(content)):
            path.write_bytes(content[:length])
            append_record(path, Note("next"), durable=False)
            assert read_records(path, Note)[-1] == Note("next")

    def test_a_last_line_that_is_no_json_is_dropped_and_cut(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        content = self.lines(path, 2)
        path.write_bytes(content + b'{"text": "x\0\0\0\0\n')
        assert len(read_records(path, Note)) == 2
        assert repair(path) == 16
        assert path.read_bytes() == content

    def test_a_broken_line_in_the_middle_is_named(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        first, second, third = self.lines(path, 3).splitlines(keepends=True)
        path.write_bytes(first + second[:-5] + b"\n" + third)
        with pytest.raises(StorageError) as error:
            read_records(path, Note)
        assert f"{path}, line 2" in one_line(error)
        for read in (read_records, iterate_records):
            left_out: list[str] = []
            assert len(list(read(path, Note, left_out))) == 2
            (line,) = left_out
            assert line.startswith(f"{path}, line 2, is not a valid Note")

    def test_the_end_of_a_growing_file_is_read_alone(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        assert read_tail(path, Note, 100) == []
        content = self.lines(path, 9)
        path.write_bytes(content + b'{"text": "unfin')
        whole = read_records(path, Note)
        assert read_tail(path, Note, 10_000) == whole
        tail = read_tail(path, Note, 100)
        assert 0 < len(tail) < 9
        assert tail == whole[-len(tail) :]

    def test_another_format_is_never_left_out(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        path.write_bytes(self.lines(path, 1).replace(b'"format":1', b'"format":9') * 2)
        with pytest.raises(UnknownFormat):
            read_records(path, Note, [])

    def test_a_last_line_of_another_type_is_no_torn_tail(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        self.lines(path, 1)
        with path.open("ab") as file:
            file.write(b'{"other": 1}\n')
        with pytest.raises(StorageError, match="line 2"):
            read_records(path, Note)
        assert repair(path) == 0

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
from speedrunner.store.files import StorageError, append_record, read_records
sys.path.insert(0, sys.argv[2])  # the checkout
from tests.speedrunner.store.test_files import Note
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


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True
        ).returncode
        == 0
    )
    if not mounted:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.process
class TestFullDisk:
    def test_a_full_disk_keeps_what_was_recorded_and_says_what_to_do(self, small_disk):
        message, count = fill(small_disk)
        assert "disk is full" in message
        assert "free some space and run the same command again; nothing recorded was lost" in message
        assert count > 10
        assert len(read_records(small_disk / "notes.jsonl", Note)) == count

    def test_after_space_is_freed_appending_goes_on(self, small_disk):
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * 100_000)
        _, count = fill(small_disk)
        ballast.unlink()
        append_record(small_disk / "notes.jsonl", Note("next"), durable=True)
        notes = read_records(small_disk / "notes.jsonl", Note)
        assert len(notes) == count + 1
        assert notes[-1] == Note("next")

    def test_a_file_that_cannot_be_replaced_stays_as_it_was(self, small_disk):
        path = small_disk / "state.json"
        write_atomic(path, Note("old"))
        fill(small_disk)
        with pytest.raises(StorageError, match="disk is full"):
            write_atomic(path, b"x" * 100_000)
        assert read_record(path, Note) == Note("old")
        assert [file.name for file in small_disk.glob(".*")] == []

    def test_a_write_that_is_cut_short_is_undone(self, tmp_path):
        limit = 64_000
        message, count = fill(tmp_path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert "file size limit" in message
        assert count == limit // (5000 + len('{"text":"","format":1}\n'))


class TestWholeFiles:
    def test_records_and_bytes_replace_what_stood_there(self, tmp_path):
        path = tmp_path / "state.json"
        write_atomic(path, b"first")
        write_atomic(path, Note([1, 2]))
        assert read_record(path, Note) == Note([1, 2])
        assert [file.name for file in tmp_path.iterdir()] == ["state.json"]

    def test_a_missing_folder_is_one_clear_line(self, tmp_path):
        with pytest.raises(StorageError, match="no such file or directory") as error:
            write_atomic(tmp_path / "none" / "state.json", b"x")
        one_line(error)

    def test_a_damaged_file_is_one_clear_line(self, tmp_path):
        path = tmp_path / "state.json"
        path.write_bytes(b'{"text"')
        with pytest.raises(StorageError, match="not a valid Note") as error:
            read_record(path, Note)
        assert str(path) in one_line(error)

    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
    def test_nothing_but_files_is_opened(self, tmp_path, monkeypatch, make):
        """To open a device would already use it."""
        make(tmp_path / "thing")
        monkeypatch.setattr(os, "open", lambda *_: pytest.fail("it was opened"))
        with pytest.raises(StorageError) as error:
            read_content(tmp_path / "thing")
        assert "not a regular file" in one_line(error)

    def test_a_published_folder_is_there_once_and_for_all(self, tmp_path):
        final = tmp_path / "v0001"
        for content in (b"one", b"two"):
            temporary = temporary_name(final)
            temporary.mkdir()
            (temporary / "skills.py").write_bytes(content)
            if content == b"one":
                publish_folder(temporary, final)
            else:
                with pytest.raises(StorageError, match="already exists"):
                    publish_folder(temporary, final)
        assert (final / "skills.py").read_bytes() == b"one"

    def test_leftovers_are_removed_and_nothing_else(self, tmp_path):
        kept = tmp_path / "policies" / "v0000"
        kept.mkdir(parents=True)
        (tmp_path / "state.json").touch()
        (tmp_path / "notes.tmp").touch()
        temporary_name(tmp_path / "state.json").touch()
        unfinished = temporary_name(tmp_path / "policies" / "v0001")
        unfinished.mkdir()
        (unfinished / "skills.py").touch()
        remove_leftovers(tmp_path)
        assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
            "notes.tmp",
            "policies",
            "policies/v0000",
            "state.json",
        ]


class TestDenseRecords:
    @pytest.mark.slow
    @pytest.mark.parametrize("value", [b"[[[[]]]]", b'{"":0}', b"{}", b'""'])
    def test_a_dense_record_is_refused_before_it_is_decoded(self, tmp_path, value):
        path = tmp_path / "notes.jsonl"
        path.write_bytes(b'{"text":[' + b",".join([value] * (DECODED_BYTES // 50)) + b'],"format":1}\n')
        for read in (read_record, read_records):
            with pytest.raises(StorageError, match=f"more than {DECODED_BYTES} bytes of memory") as error:
                read(path, Note)
            assert one_line(error).startswith(str(path))

    def test_a_list_of_many_dense_records_is_refused(self, tmp_path):
        path = tmp_path / "notes.jsonl"
        line = b'{"text":[' + b",".join([b"{}"] * 100_000) + b'],"format":1}\n'
        path.write_bytes(line * (DECODED_BYTES // (100_000 * 190) + 1))
        with pytest.raises(StorageError, match=r"more than .* bytes of memory"):
            read_records(path, Note)
        assert next(iterate_records(path, Note)).text[0] == {}


def test_a_log_is_appended_to_and_for_its_owner_only(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        with open_log(tmp_path / "server.log") as log:
            log.write(text)
    assert (tmp_path / "server.log").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_removed_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StorageError) as error:
        remove(tmp_path / "sleep.jsonl")
    assert str(error.value) == f"{tmp_path / 'sleep.jsonl'} could not be removed: input/output error"
