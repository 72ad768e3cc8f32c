"""The folders in which a server keeps what its libraries compile."""

from __future__ import annotations

import os
import stat
import unittest
from pathlib import Path

import pytest

from serving.engine.folders import TEMPORARY, USUAL, cache_settings

JOB = {"SLURM_JOB_ID": "7"}


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The node's own disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


@pytest.fixture
def private(tmp_path: Path) -> Path:
    return tmp_path / "private"


def below(folder: Path, settings: dict[str, str]) -> set[str]:
    return {name for name, value in settings.items() if Path(value).is_relative_to(folder)}


def test_outside_of_a_job_only_what_libraries_put_into_temporary_folders_is_moved_home(private: Path) -> None:
    settings = cache_settings({"TMPDIR": "/var/tmp"}, private)
    assert set(settings) == set(TEMPORARY)
    assert below(Path.home() / ".cache", settings) == set(TEMPORARY)


@pytest.mark.parametrize("variable", ["SLURM_TMPDIR", "TMPDIR"])
def test_in_a_job_all_caches_are_in_a_folder_of_the_user_on_the_nodes_disk(
    disk: Path, private: Path, variable: str
) -> None:
    base = disk / f"speedrunner-{os.getuid()}"
    settings = cache_settings({**JOB, variable: str(disk)}, private)
    assert below(base, settings) == set(USUAL)
    assert len(set(settings.values())) == len(USUAL)
    assert stat.S_IMODE(base.stat().st_mode) == 0o700
    assert cache_settings({**JOB, variable: str(disk)}, private) == settings  # as after a requeue


def test_the_users_own_folder_for_all_caches_wins(disk: Path, private: Path) -> None:
    own = disk / "mine" / "caches"
    for environment in ({}, JOB):
        settings = cache_settings({**environment, "SPEEDRUNNER_CACHE": str(own), "TMPDIR": "/tmp"}, private)
        assert below(own, settings) == set(USUAL)


def test_a_cache_that_the_user_has_placed_stays_there(disk: Path, private: Path) -> None:
    environment = {**JOB, "TMPDIR": str(disk), "TRITON_CACHE_DIR": "/elsewhere"}
    assert set(cache_settings(environment, private)) == set(USUAL) - {"TRITON_CACHE_DIR"}
    assert cache_settings(dict.fromkeys(USUAL, "/elsewhere"), private) == {}


@pytest.mark.parametrize("trap", ["open to others", "a link", "a file"])
def test_a_folder_that_others_may_have_prepared_is_not_used(
    disk: Path, private: Path, tmp_path: Path, trap: str
) -> None:
    folder = disk / f"speedrunner-{os.getuid()}"
    if trap == "open to others":
        folder.mkdir()
        folder.chmod(0o770)
    elif trap == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "theirs")
    else:
        folder.touch()
    with unittest.TestCase().assertLogs(level="WARNING") as logged:
        settings = cache_settings({**JOB, "TMPDIR": str(disk)}, private)
    assert below(private, settings) == set(USUAL)
    assert f"caching in {folder} is off" in logged.output[0]
