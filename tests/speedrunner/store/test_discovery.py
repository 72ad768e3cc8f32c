"""Finding runs in a folder, and reading them although some are damaged."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from speedrunner.library.rules import InvalidSkill
from speedrunner.store.discovery import readable, runs_below
from speedrunner.store.files import StorageError


def test_runs_are_found_at_any_depth_but_not_inside_runs_or_behind_links(tmp_path: Path) -> None:
    for name in ("b/deep", "a", "a/inner", "elsewhere/run"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()
    runs = tmp_path / "b"
    (runs / "link").symlink_to(tmp_path / "elsewhere")
    assert runs_below(runs) == [runs / "deep"]
    assert runs_below(tmp_path / "a") == [tmp_path / "a"]
    assert runs_below(tmp_path) == [tmp_path / name for name in ("a", "b/deep", "elsewhere/run")]


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing"):
        runs_below(tmp_path / "missing")


def read(path: Path) -> str:
    errors = {"torn": StorageError("torn/episodes.jsonl is cut off"), "odd": InvalidSkill("no such skill")}
    if error := errors.get(path.name):
        raise error
    return path.name


def test_damaged_runs_are_named_and_the_others_are_read() -> None:
    found, problems = readable([Path("torn"), Path("sound"), Path("odd")], read)
    assert found == ["sound"]
    assert problems == ["torn/episodes.jsonl is cut off", "odd cannot be read: no such skill"]


def test_an_error_that_no_reader_expects_is_told_with_its_type_and_place_and_without_numpy() -> None:
    def read(path: Path) -> None:
        raise KeyError(numpy.int64(4))

    line = r"^one cannot be read: .* \(KeyError: 4, at test_discovery\.py:\d+\); run `speedrunner verify`"
    with pytest.raises(StorageError, match=line):
        readable([Path("one")], read)


def test_runs_that_are_all_damaged_are_an_error() -> None:
    with pytest.raises(StorageError, match="cut off; odd cannot be read"):
        readable([Path("torn"), Path("odd")], read)
