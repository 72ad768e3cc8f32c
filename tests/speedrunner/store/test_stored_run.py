from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError
from tests.golden_tables import Golden, error_message, refusals
from tests.speedrunner.run_samples import play

HOW = ("read", "write")


def opened(path: Path, how: str) -> None:
    if how == "read":
        load(path)
    else:
        with RunDirectory.open_for_writing(path):
            pass


@pytest.fixture
def open_folder():
    """A temporary folder that everybody may enter (pytest's own may not be)."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


class TestForeignDirectories:
    def test_what_is_no_run_is_refused_and_left_alone(self, tmp_path, golden: Golden):
        file, other, empty, later = (tmp_path / name for name in ("file", "other", "empty", "later"))
        file.write_text("mine")
        for folder in (other, empty):
            folder.mkdir()
        (other / "thesis.tex").touch()
        play(later)
        (later / "state.json").write_text('{"steps": [], "format": 3}')
        places = {
            "a file": file,
            "a folder with something else": other,
            "a path below a file": file / "run",
            "a run of a later version": later,
        }
        tries = [
            (f"{name}: {how}", partial(opened, path, how)) for name, path in places.items() for how in HOW
        ]
        tries.append(("an empty folder: read", partial(opened, empty, "read")))
        golden("no_runs.txt", refusals(tries, RunDirectoryError, HERE=tmp_path))
        assert file.read_text() == "mine"
        assert [file.name for file in other.iterdir()] == ["thesis.tex"]
        play(empty)

    @pytest.mark.parametrize("how", HOW)
    def test_no_permission_to_read(self, open_folder, how):
        path = open_folder / "run"
        play(path)
        path.chmod(0)
        try:
            with as_nobody():
                line = error_message(partial(opened, path, how), RunDirectoryError)
        finally:
            path.chmod(0o755)
        assert f"{path} cannot be used as a run's directory: permission denied" in line
