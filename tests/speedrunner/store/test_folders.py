from __future__ import annotations

import errno
from pathlib import Path

import pytest

from speedrunner.store.files import StorageError, temporary_name
from speedrunner.store.folders import check_new, whole_folder


def fill(folder: Path, content: bytes = b"") -> None:
    with whole_folder(folder) as hidden:
        (hidden / "skills.py").write_bytes(content)


def test_a_folder_exists_once_it_is_whole_and_never_changes(tmp_path: Path) -> None:
    final = tmp_path / "policies" / "v0001"
    fill(final, b"one")
    with pytest.raises(StorageError) as error:
        fill(final, b"two")
    assert str(error.value) == f"{final} could not be written: it already exists and is not empty"
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


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    left = temporary_name(tmp_path / "v0001")
    left.mkdir()
    (left / "half").touch()
    fill(tmp_path / "v0001")
    assert [path.name for path in tmp_path.rglob("*")] == ["v0001", "skills.py"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place")
    with pytest.raises(StorageError):
        fill(tmp_path / "link")
    assert not list((tmp_path / "place").iterdir())


def test_a_folder_with_something_in_it_is_refused_with_the_option_that_named_it(tmp_path: Path) -> None:
    check_new(tmp_path)
    check_new(tmp_path / "none")
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(StorageError) as error:
            check_new(taken, "--static")
        assert str(error.value) == f"{taken} is not an empty folder: name another one with --static"
