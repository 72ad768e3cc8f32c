"""Files made for other people follow the user's umask; a run is its owner's alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.model_configs import CHECKOUT
from tests.scripted_runs import in_process
from tests.speedrunner.results.small_runs import learnt

pytestmark = pytest.mark.process

RECORDED = CHECKOUT / "tests/data/format_3"
"""A run whose skills fit its environment."""

SHARED = {
    "view": "view RUN --static OUT",
    "report": "report RUN --out OUT",
    "export": "export RUN --to dataset --out OUT",
    "export, skills": "export RECORDED --to skills --out OUT",
    "init": "init env treasure OUT",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    learnt(path)
    return path


@pytest.fixture
def umask() -> Iterator[int]:
    """Set the umask of a user who shares with the group."""
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_output_follows_the_umask(name: str, run: Path, tmp_path: Path, umask: int) -> None:
    out = tmp_path / "out"
    places = {"RUN": str(run), "RECORDED": str(RECORDED), "OUT": str(out)}
    words = [places.get(word, word) for word in SHARED[name].split()]
    done = in_process(*words)
    assert done.returncode == 0, done.stderr
    found = {path: path.stat().st_mode & 0o777 for path in (out, *out.rglob("*"))}
    assert found == {path: 0o750 if path.is_dir() else 0o640 for path in found}
    assert any(path.is_file() for path in found)
