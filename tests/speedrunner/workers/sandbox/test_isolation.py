"""Which way to isolate is taken, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from speedrunner.config.schema import SandboxConfig
from speedrunner.runs.machine import confinement
from speedrunner.workers.sandbox import isolation
from speedrunner.workers.sandbox.child_process import require
from speedrunner.workers.sandbox.isolation import find_isolation, sandbox_limits
from speedrunner.workers.sandbox.settings import Sandbox

pytestmark = pytest.mark.process


@pytest.fixture
def bwrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The only place where bubblewrap is looked for; what was found before is forgotten."""
    caches: list[Callable[[], None]] = [
        each.cache_clear for each in (isolation.find_bubblewrap, isolation._find_level, confinement, require)
    ]
    monkeypatch.setenv("PATH", str(tmp_path))
    for forget in caches:
        forget()
    yield tmp_path / "bwrap"
    for forget in caches:
        forget()


def test_bubblewrap_comes_first(bwrap: Path) -> None:
    bwrap.symlink_to(shutil.which("bwrap", path=os.defpath) or "nowhere")
    assert find_isolation("isolated") == "bubblewrap"
    assert confinement(Sandbox()).startswith("bubblewrap ")


def test_where_it_is_not_installed_user_namespaces_take_its_place(bwrap: Path) -> None:
    require(Sandbox())
    assert confinement(Sandbox()).startswith("user namespaces: no network, system read-only")
    assert sandbox_limits(SandboxConfig()).kind == "namespaces"  # what workers are told


def test_where_it_cannot_start_they_do_too(bwrap: Path) -> None:
    bwrap.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    bwrap.chmod(0o755)
    assert find_isolation("isolated") == "namespaces"


REQUIRE = """
from speedrunner.workers.sandbox.child_process import require
from speedrunner.workers.sandbox.settings import Sandbox, SandboxUnavailable
try:
    require(Sandbox())
except SandboxUnavailable as error:
    print(error)
"""


def test_where_neither_can_be_used_one_line_says_what_to_ask_for() -> None:
    """In a user namespace that is limited to no further ones, which limits nobody else."""
    limit = "echo 0 > /proc/sys/user/max_user_namespaces"
    shell = ("sh", "-c", f'{limit}; exec "$0" -c "$1"', sys.executable, REQUIRE)
    tried = subprocess.run(("unshare", "--user", "--map-root-user", *shell), capture_output=True, text=True)
    (line,) = tried.stdout.splitlines()
    assert "bubblewrap cannot be used (bwrap: Creating new namespace failed" in line
    assert "user namespaces cannot be used (unshare: No space left on device)" in line
    assert "ask the administrators to allow user namespaces, or to install bubblewrap" in line
    assert "set sandbox.kind=rlimits to run skills without isolation" in line
