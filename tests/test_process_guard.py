"""Tests without the marker `process` start no process; this file's own tests are such tests."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import get_context

import pytest

from tests.process_guard import STARTS, StartsProcess, guard

TRUE = ["/bin/true"]


@pytest.fixture
def forgiving() -> Iterator[None]:
    """Forget what the test tried to start, which would fail it."""
    yield
    guard.watch(guard.test)


@pytest.mark.usefixtures("forgiving")
@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.Popen(TRUE),
        lambda: os.posix_spawn(TRUE[0], TRUE, {}),
        lambda: os.system(TRUE[0]),
        lambda: os.execv("/nowhere", TRUE),  # unguarded, a program that exists would replace the tests
        lambda: pty.spawn(TRUE),
        lambda: get_context("spawn").Process(target=print).start(),
    ],
    ids=["Popen", "posix_spawn", "system", "execv", "pty", "spawn"],
)
def test_a_start_is_refused_with_the_test_s_name(start: Callable[[], object]) -> None:
    with pytest.raises(StartsProcess, match=r"test_process_guard.* mark it with @pytest\.mark\.process"):
        start()


def test_every_start_is_guarded() -> None:
    assert [name for owner, name in STARTS if not hasattr(getattr(owner, name), "__wrapped__")] == []


@pytest.mark.usefixtures("forgiving")
def test_a_start_is_remembered_where_its_exception_is_caught() -> None:
    with suppress(Exception):
        subprocess.run(TRUE)
    assert len(guard.started) == 1
    assert str(TRUE) in guard.started[0]


def test_a_shared_fixture_may_start_one() -> None:
    with guard.paused():
        assert subprocess.run(TRUE).returncode == 0
    assert guard.started == []


@pytest.mark.process
def test_a_test_with_the_marker_may_start_one() -> None:
    assert subprocess.run(TRUE).returncode == 0


@pytest.mark.slow
def test_so_may_a_slow_one() -> None:
    assert subprocess.run(TRUE).returncode == 0
