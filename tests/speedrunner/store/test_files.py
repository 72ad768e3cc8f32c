from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from speedrunner.store.files import (
    StorageError,
    open_log,
    read_content,
    remove_leftovers,
    temporary_name,
    whole_folder,
    write_atomic,
)
from speedrunner.store.json_records import read_record, write_record
from tests.speedrunner.store.test_json_records import Note, file_size_limit, one_line


class TestWholeFiles:
    def test_records_and_bytes_replace_what_stood_there(self, tmp_path):
        path = tmp_path / "state.json"
        write_atomic(path, b"first")
        write_record(path, Note([1, 2]))
        assert read_record(path, Note) == Note([1, 2])
        assert [file.name for file in tmp_path.iterdir()] == ["state.json"]

    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
    def test_nothing_but_files_is_read(self, tmp_path, make):
        make(tmp_path / "thing")
        with pytest.raises(StorageError) as error:
            read_content(tmp_path / "thing")
        assert "not a regular file" in one_line(error)

    def test_leftovers_are_removed_and_nothing_else(self, tmp_path):
        kept = tmp_path / "policies" / "v0000"
        kept.mkdir(parents=True)
        (tmp_path / "state.json").touch()
        for mine in ("notes.tmp", ".notes.tmp", ".notes.old.tmp", "policies/.mine.tmp"):
            (tmp_path / mine).touch()
        temporary_name(tmp_path / "state.json").touch()
        unfinished = temporary_name(tmp_path / "policies" / "v0001")
        unfinished.mkdir()
        (unfinished / "skills.py").touch()
        remove_leftovers(tmp_path)
        left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
        mine = [".notes.old.tmp", ".notes.tmp", "notes.tmp"]
        assert left == [*mine, "policies", "policies/.mine.tmp", "policies/v0000", "state.json"]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_record(path, Note("old"))
    with file_size_limit(64_000), pytest.raises(StorageError, match="file size limit"):
        write_atomic(path, b"x" * 100_000)
    assert read_record(path, Note) == Note("old")
    assert [file.name for file in tmp_path.glob(".*")] == []


def test_a_log_is_appended_to_and_for_its_owner_only(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        with open_log(tmp_path / "server.log") as log:
            log.write(text)
    assert (tmp_path / "server.log").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o600


def fill(folder: Path, content: bytes = b"") -> None:
    with whole_folder(folder) as hidden:
        (hidden / "skills.py").write_bytes(content)


def test_a_folder_exists_once_it_is_whole_and_never_changes(tmp_path: Path) -> None:
    final = tmp_path / "policies" / "v0001"
    fill(final, b"one")
    with pytest.raises(StorageError) as error:
        fill(final, b"two")
    assert str(error.value) == f"{final} could not be written: it exists and is not an empty folder"
    assert (final / "skills.py").read_bytes() == b"one"
    assert [path.name for path in final.parent.iterdir()] == ["v0001"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def break_off() -> None:
        with whole_folder(tmp_path / "v0001") as hidden:
            (hidden / "skills.py").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_while_it_is_filled_is_explained_with_its_final_name(tmp_path: Path) -> None:
    def fill_the_disk() -> None:
        with whole_folder(tmp_path / "v0001"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError) as error:
        fill_the_disk()
    assert str(error.value).startswith(f"{tmp_path / 'v0001'} could not be written: the disk is full: ")
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place")
    with pytest.raises(StorageError):
        fill(tmp_path / "link")
    assert not list((tmp_path / "place").iterdir())
