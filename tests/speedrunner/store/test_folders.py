from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from speedrunner.store.files import StorageError, temporary_name
from speedrunner.store.folders import check_new, output_folder, record_folder

Create = Callable[[Path], AbstractContextManager[Path]]

both = pytest.mark.parametrize("create", [record_folder, output_folder])


def fill(create: Create, folder: Path, content: bytes = b"") -> None:
    with create(folder) as hidden:
        (hidden / "skills.py").write_bytes(content)


@both
def test_a_folder_exists_once_it_is_whole_and_never_changes(create: Create, tmp_path: Path) -> None:
    final = tmp_path / "policies" / "v0001"
    fill(create, final, b"one")
    with pytest.raises(StorageError) as error:
        fill(create, final, b"two")
    assert str(error.value) == f"{final} could not be written: it already exists and is not empty"
    assert (final / "skills.py").read_bytes() == b"one"
    assert [path.name for path in final.parent.iterdir()] == ["v0001"]


@both
def test_an_error_leaves_nothing(create: Create, tmp_path: Path) -> None:
    def break_off() -> None:
        with create(tmp_path / "v0001") as hidden:
            (hidden / "skills.py").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert not list(tmp_path.iterdir())


@both
def test_what_a_killed_process_left_is_replaced(create: Create, tmp_path: Path) -> None:
    left = temporary_name(tmp_path / "v0001")
    left.mkdir()
    (left / "half").touch()
    fill(create, tmp_path / "v0001")
    assert [path.name for path in tmp_path.rglob("*")] == ["v0001", "skills.py"]


def test_records_are_not_written_through_a_link_and_outputs_are(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place")
    with pytest.raises(StorageError):
        fill(record_folder, tmp_path / "link")
    assert not list((tmp_path / "place").iterdir())
    fill(output_folder, tmp_path / "link")
    assert (tmp_path / "place" / "skills.py").exists()


def test_a_folder_with_something_in_it_is_refused_with_the_option_that_named_it(tmp_path: Path) -> None:
    check_new(tmp_path)
    check_new(tmp_path / "none")
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(StorageError) as error:
            check_new(taken, "--static")
        assert str(error.value) == f"{taken} is not an empty folder: name another one with --static"
