"""`speedrunner check env`: any environment against its promises."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from envs import Opening, Split, Task, TextEnv
from serving.model_configs import CHECKOUT
from tests.processes import all_end
from tests.scripted_runs import complaint, in_process, speedrunner
from tests.toy_env import Corridor

pytestmark = pytest.mark.process


def test_an_option_that_a_split_needs_is_named_as_it_is_typed_here() -> None:
    line = complaint(in_process("check", "env", "scienceworld"))
    assert "must be set for a split: family=3 (electricity) or family=4" in line


def test_somebody_s_own_in_the_current_folder_and_whatever_it_prints(tmp_path: Path) -> None:
    toy = (CHECKOUT / "tests" / "toy_env.py").read_text()
    (tmp_path / "my_world.py").write_text(toy)
    done = speedrunner("check", "env", "my_world:Corridor", "pit=-50", "--calls", "40", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    plays = "conforms: up to 40 random primitive calls in each play, the same in 3 processes"
    assert done.stdout.splitlines() == [f"ok           my_world:Corridor: {plays}", "my_world:Corridor: 1 ok"]
    assert "walking" in done.stderr


def test_each_broken_promise_is_a_line(tmp_path: Path) -> None:
    toy = (CHECKOUT / "tests" / "toy_env.py").read_text()
    broken = toy.replace("self._task, self._position = task, 0", "self._task = task")
    broken = broken.replace('"Walk some fields along the corridor."', '" "')
    (tmp_path / "my_world.py").write_text(broken)
    done = in_process("check", "env", "my_world:Corridor", cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines == [
        "FAILED       my_world:Corridor: primitive 'walk': has no documentation",
        "my_world:Corridor: 1 failed",
    ]
    (tmp_path / "my_world.py").write_text(broken.replace('" "', '"Walk."'))
    done = in_process("check", "env", "my_world:Corridor", cwd=tmp_path)
    assert done.returncode == 1
    assert any(": determinism: " in line for line in done.stdout.splitlines()), done.stdout


class ShowsAHash(Corridor):
    """It looks the same all through one process."""

    def _view(self) -> str:
        return f"{super()._view()} A sign says {hash('flag')}."


class EndsItsProcess(Corridor):
    def call(self, name: str, **arguments: Any) -> str:
        if name == "walk" and self._position == 1:
            os._exit(7)
        return super().call(name, **arguments)


class Hangs(Corridor):
    def call(self, name: str, **arguments: Any) -> str:
        while name == "walk" and self._position == 1:
            time.sleep(0.1)
        return super().call(name, **arguments)


MARK = os.environ.setdefault("SPEEDRUNNER_TEST_MARK", uuid4().hex)  # which the command's processes inherit
LEFT = [sys.executable, "-c", f"import time; time.sleep(1000); {MARK!r}"]


class LeavesProcesses(Corridor):
    def reset(self, task: Task) -> Opening:
        opening = super().reset(task)
        subprocess.Popen(LEFT, start_new_session=True)
        return opening


class ShowsNoText(Corridor):
    def _view(self) -> str:
        return super()._view() + "\ud800"


class CannotBeLoaded(Corridor):
    @classmethod
    def preload(cls) -> None:
        raise RuntimeError("no mortar")


class CannotBeSplit(Corridor):
    @classmethod
    def splits(cls, *, train: int = 4, test: int = 2) -> Split:
        raise RuntimeError("no bricks")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (ShowsAHash, "played in another process or order, differs in opening"),
        (ShowsNoText, "texts: contain a lone surrogate"),
        (
            EndsItsProcess,
            "call: walk() with task.name=default task.index=3 ended the process (exit status 7)",
        ),
        (Hangs, "call: walk() with task.name=default task.index=3 did not return within 5 s"),
        (LeavesProcesses, "close: processes still run: "),
        (CannotBeLoaded, "preload raised RuntimeError: no mortar (test_check_env.py, line"),
        (CannotBeSplit, "splits raised RuntimeError: no bricks (test_check_env.py, line"),
    ],
)
def test_what_shows_from_outside_only_is_a_line_too(kind: type[TextEnv], finding: str) -> None:
    limit = ["--seconds", "5"] if kind is Hangs else []
    done = in_process("check", "env", kind.name, "--calls", "20", *limit)
    assert done.returncode == 1
    line, _ = done.stdout.splitlines()
    assert finding in line
    assert "Traceback" not in done.stderr
    assert all_end([each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == LEFT])


class Unsplit(Corridor):
    """For single episodes."""

    splits = classmethod(TextEnv.splits.__func__)  # type: ignore[attr-defined]


def test_an_environment_without_a_split_is_checked_on_the_task_that_is_named() -> None:
    line = complaint(in_process("check", "env", Unsplit.name))
    assert "has no split" in line
    assert "or choose a task with task.name=... task.index=..." in line
    done = in_process("check", "env", Unsplit.name, "task.name=default", "task.index=4", "--calls", "20")
    assert done.returncode == 0, done.stdout
    done = in_process("check", "env", Unsplit.name, "task.name=maze")
    assert done.returncode == 1
    assert "name='maze', index=0) raised UnknownTask: unknown task 'maze' of" in done.stdout
