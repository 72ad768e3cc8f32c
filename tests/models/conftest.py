"""The bundled models, each built once for all tests of the recipes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "models" / "random"


def run_recipe(name: str, out: Path) -> subprocess.CompletedProcess[str]:
    """A recipe as the command that it is."""
    return subprocess.run([sys.executable, RECIPES / name, "--out", out], capture_output=True, text=True)


@pytest.fixture(scope="session")
def dense_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new build of the dense model."""
    return built("build.py", tmp_path_factory.mktemp("models") / "tiny-random")


@pytest.fixture(scope="session")
def hybrid_folder(dense_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new build of the hybrid model in place of the other recipe's, and of a file that is no part of it."""
    out = shutil.copytree(dense_folder, tmp_path_factory.mktemp("models") / "hybrid")
    (out / "stale").touch()
    return built("hybrid.py", out)


def built(recipe: str, out: Path) -> Path:
    done = run_recipe(recipe, out)
    assert done.returncode == 0, done.stderr
    return out
