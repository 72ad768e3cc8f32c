"""Finding runs in a folder, and describing damaged ones."""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pytest

from speedrunner.library.rules import InvalidSkill
from speedrunner.store.discovery import damage, runs_below
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
    assert runs_below(runs, tmp_path / "a", runs / ".." / "a") == [runs / "deep", tmp_path / "a"]


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing"):
        runs_below(tmp_path / "missing")


def test_a_damaged_run_is_described_in_one_line() -> None:
    torn, odd = StorageError("torn/episodes.jsonl\n is cut off"), InvalidSkill("no such skill")
    assert damage(Path("torn"), torn) == "torn/episodes.jsonl is cut off"
    assert damage(Path("odd"), odd) == "odd cannot be read: no such skill"
    with pytest.raises(KeyError) as unexpected:  # told with its type and place, and without numpy
        raise KeyError(numpy.int64(4))
    line = r"one cannot be read: .* \(KeyError: 4, at test_discovery\.py:\d+\); run `speedrunner verify`"
    assert re.match(line, damage(Path("one"), unexpected.value))
