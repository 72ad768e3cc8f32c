from __future__ import annotations

import os
from pathlib import Path

import pytest

from speedrunner.store.files import StorageError, temporary_name
from speedrunner.store.folders import check_new, new_folder


def fill(folder: Path, content: bytes, *, shared: bool = False) -> None:
    with new_folder(folder, shared=shared) as hidden:
        (hidden / "skills.py").write_bytes(content)


def test_a_folder_exists_once_it_is_whole_and_never_changes(tmp_path: Path) -> None:
    final = tmp_path / "policies" / "v0001"
    fill(final, b"one")
    with pytest.raises(StorageError, match="v0001 could not be written: it already exists and is"):
        fill(final, b"two")
    assert (final / "skills.py").read_bytes() == b"one"
    assert [path.name for path in final.parent.iterdir()] == ["v0001"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def break_off() -> None:
        with new_folder(tmp_path / "v0001") as hidden:
            (hidden / "skills.py").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert not list(tmp_path.iterdir())


def test_an_empty_folder_and_what_a_killed_process_left_are_replaced(tmp_path: Path) -> None:
    final = tmp_path / "v0001"
    final.mkdir()
    temporary_name(final).mkdir()
    (temporary_name(final) / "half").touch()
    fill(final, b"one")
    assert [path.name for path in tmp_path.rglob("*")] == ["v0001", "skills.py"]


def test_it_is_for_its_owner_only_unless_it_is_shared(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        fill(tmp_path / "own", b"")
        fill(tmp_path / "shared", b"", shared=True)
    finally:
        os.umask(before)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755


def test_a_folder_with_something_in_it_is_refused_with_the_option_that_named_it(tmp_path: Path) -> None:
    check_new(tmp_path)
    check_new(tmp_path / "none")
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(StorageError) as error:
            check_new(taken, "--static")
        assert str(error.value) == f"{taken} exists and is not empty: name another folder with --static"
