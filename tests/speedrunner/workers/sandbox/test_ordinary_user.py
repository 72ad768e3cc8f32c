"""The attacks once more, by an ordinary user, where the tests run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534
PLAYED = ("test_hostile.py", "test_forgeries.py", "test_isolation.py")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the user's."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


def as_user(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    path = {"PATH": os.environ["PATH"]}
    return subprocess.run([*user, *command], env=path | environment, capture_output=True, text=True)


def readable(path: Path) -> bool:
    return as_user("test", "-r", str(path)).returncode == 0


def python(home: Path) -> Path:
    """An interpreter that the user can run: this one, or a copy of it."""
    program = Path(sys._base_executable)  # type: ignore[attr-defined]
    if readable(program):
        return program
    shutil.copytree(
        sys.base_prefix,
        home / "python",
        symlinks=True,
        ignore=shutil.ignore_patterns("site-packages", "test"),
    )
    return home / "python" / program.resolve().relative_to(Path(sys.base_prefix).resolve())


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="the tests run as an ordinary user")
def test_every_attack_is_contained_for_an_ordinary_user_too(home: Path) -> None:
    here, packages = Path(__file__).parent, Path(pytest.__file__).parents[1]
    if not (readable(here) and readable(packages)):
        pytest.skip("an ordinary user can read neither tests nor packages")
    program = python(home)
    played = as_user(
        *(str(program), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={home / 'tests'}"),
        *(str(here / name) for name in PLAYED),
        HOME=str(home),
        TMPDIR=str(home),
        PYTHONPATH=os.pathsep.join((str(packages), str(here.parents[3]))),
        PYTHONDONTWRITEBYTECODE="1",
        LD_LIBRARY_PATH=str(program.parents[1] / "lib"),
    )
    assert played.returncode == 0, played.stdout[-5_000:] + played.stderr
    assert "passed" in played.stdout
