"""Worlds are upstream's; what makes them is compiled once per machine."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from envs import numba_cache

ROOT = Path(__file__).parents[2]

WORLD = """
import hashlib, logging
logging.basicConfig()
from envs import Task, make
env = make("crafter")
env.reset(Task("crafter", "default", 3))
from envs import crafter_terrain
print(hashlib.sha256(env._game.world._mat_map.tobytes()).hexdigest())
compiled = getattr(crafter_terrain._choose, "stats", None)
print(len(compiled.cache_hits) if compiled else 0)
"""
"""Prints a hash of a world, and how often compiled code was found in the cache."""


def generated(**environment: str) -> tuple[str, int, str]:
    settings = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    run = subprocess.run(
        [sys.executable, "-c", WORLD],
        env=settings | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    world, hits = run.stdout.split()
    return world, int(hits), run.stderr


@pytest.mark.slow
@pytest.mark.process
def test_a_second_process_finds_what_the_first_compiled(tmp_path: Path) -> None:
    first, second = generated(TMPDIR=str(tmp_path)), generated(TMPDIR=str(tmp_path))
    assert (first[1], second[1]) == (0, 1)
    assert first[0] == second[0]
    (folder,) = tmp_path.iterdir()
    assert folder.name == f"speedrunner-numba-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.process
def test_without_compiling_the_worlds_are_the_same() -> None:
    world, _, said = generated()
    assert said == ""
    assert generated(NUMBA_DISABLE_JIT="1")[0] == world


class TestTheCacheFolder:
    @pytest.fixture(autouse=True)
    def _nothing_set(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        monkeypatch.delitem(sys.modules, "numba", raising=False)  # so that its settings stay as they are
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def test_a_folder_that_others_could_write_to_is_not_used(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / f"speedrunner-numba-{os.getuid()}").mkdir()
        (tmp_path / f"speedrunner-numba-{os.getuid()}").chmod(0o777)
        numba_cache.prepare()
        assert "is not used: only you may have access to the folder" in caplog.text
        folder = Path(os.environ["NUMBA_CACHE_DIR"])
        assert folder.parent == tmp_path
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def test_where_nothing_can_be_written_numba_is_off(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        with caplog.at_level(logging.WARNING):
            numba_cache.prepare()
        assert os.environ["NUMBA_DISABLE_JIT"] == "1"
        assert "NUMBA_CACHE_DIR" not in os.environ
        assert "numba is off because it has no folder to compile in" in caplog.text
