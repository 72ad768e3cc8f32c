"""The bundled models, each built once for all tests of the recipes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[2] / "models" / "random" / "build.py"


def run_recipe(model: str, out: Path) -> subprocess.CompletedProcess[str]:
    """The recipe as the command that it is."""
    return subprocess.run([sys.executable, RECIPE, model, "--out", out], capture_output=True, text=True)


@pytest.fixture(scope="session")
def dense_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new build of the dense model."""
    return built("tiny-random", tmp_path_factory.mktemp("models") / "tiny-random")


@pytest.fixture(scope="session")
def hybrid_folder(dense_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new build of the hybrid model in place of the other model, and of a file that is no part of it."""
    out = shutil.copytree(dense_folder, tmp_path_factory.mktemp("models") / "hybrid")
    (out / "stale").touch()
    return built("tiny-hybrid", out)


def built(model: str, out: Path) -> Path:
    done = run_recipe(model, out)
    assert done.returncode == 0, done.stderr
    return out
