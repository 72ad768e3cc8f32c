"""A person plays an episode: what is typed comes from a text, a pipe or a terminal."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from envs import Opening, Task
from envs.scienceworld import ScienceWorld
from serving.model_configs import CHECKOUT
from speedrunner.cli.hand_play import completions
from tests.golden_tables import Golden, table
from tests.processes import HANGS_S
from tests.scripted_runs import CORRIDOR, command, in_process
from tests.toy_env import Corridor

pytestmark = pytest.mark.process

SIGNATURES = {each.name: each.signature for each in (*Corridor().primitives, *ScienceWorld.primitives)}


Play = Callable[..., subprocess.CompletedProcess[str]]


def started(*arguments: str) -> subprocess.Popen[str]:
    """A play that waits for lines, in a process group of its own as in a terminal."""
    return subprocess.Popen(
        command("episode", "--human", *arguments),
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """A play in this process, with what is typed as its input."""

    def play(*arguments: str, typed: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        return in_process("episode", "--human", *arguments, cwd=cwd)

    return play


class Sealed(Corridor):
    """Its door never opens."""

    def reset(self, task: Task) -> Opening:
        print("it never opens", flush=True)
        while True:
            time.sleep(0.1)


class TestCompletion:
    @pytest.mark.parametrize(
        ("before", "word", "found"),
        [
            ("", "w", ["walk"]),
            ("  ", "", ["walk", "look", "quit"]),
            ("walk ", "l", ["left"]),
            ("walk 2, ", "", ["left", "right"]),
            ("walk(", "s", ["steps="]),
            ("walk(direction='", "r", ["right"]),
            ("look ", "", []),
            ("fly ", "", []),
        ],
    )
    def test_of_names_choices_and_parameters(self, before: str, word: str, found: list[str]) -> None:
        assert completions(before, word, ["walk", "look", "quit"], SIGNATURES) == found


CORRIDOR_3, CORRIDOR_8 = ([f"env={CORRIDOR}", f"task.index={index}"] for index in (3, 8))
MISTAKES = "walk(steps='far')\nwalk(\njump\nwalk(direction='up')\n"
PLAYS = {
    "an episode to its end": (CORRIDOR_3, f"help\n\nlook\nwalk 2\n{MISTAKES}walk(steps=1)\nwalk\n"),
    "the end of the input": (CORRIDOR_8, "walk 4\n"),
    "quit": (CORRIDOR_8, "walk 4\nquit\nwalk 4\n"),
    "an environment that breaks": ([f"env={CORRIDOR}", "task.name=broken_step", "task.index=9"], "walk 3\n"),
    "an unknown task": ([f"env={CORRIDOR}", "task.name=maze"], ""),
    "an unknown task of scienceworld": (["env=scienceworld", "task.name=fly", "task.index=0"], ""),
    "an option that is missing": (["env=scienceworld"], ""),
}
"""The arguments and what is typed."""


class TestPlay:
    def test_what_is_shown(self, play: Play, golden: Golden) -> None:
        shown = {}
        for name, (arguments, typed) in PLAYS.items():
            done = play(*arguments, typed=typed)
            shown[name] = f"{done.stdout}{done.stderr}[exit status {done.returncode}]"
        golden("hand_play.txt", table(shown))

    def test_tab_completes_a_name_on_a_terminal(self) -> None:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            command("episode", "--human", f"env={CORRIDOR}", "task.index=8"),
            cwd=CHECKOUT, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "dumb"},
        )  # fmt: skip
        os.close(theirs)
        shown = ""
        while not shown.endswith("> "):
            shown += os.read(ours, 1024).decode()
        os.write(ours, b"wa\t 4\nqu\t\n")
        with suppress(OSError):  # the end, once no process has the terminal open
            while text := os.read(ours, 1024):
                shown += text.decode()
        os.close(ours)
        assert process.wait(HANGS_S) == 0
        assert shown.replace("\r", "").endswith('=== left: score 0.5, 1 calls, 1 actions; {"position":4}\n')

    def test_so_is_ctrl_c(self) -> None:
        process = started(f"env={CORRIDOR}")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("look\n")
        process.stdin.flush()
        while not process.stdout.readline().startswith("> You are at field 0."):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANGS_S)
        assert (process.returncode, err) == (0, "")
        assert out.endswith('=== left: score 0, 1 calls, 0 actions; {"position":0}\n')

    def test_ctrl_c_in_a_call_lets_it_end(self) -> None:
        process = started(f"env={CORRIDOR}", "task.name=slow_step", "task.index=5")
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("walk\n")
        process.stdin.flush()
        assert process.stderr.readline() == "walking\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANGS_S)
        assert (process.returncode, err) == (0, "")
        assert out.endswith('=== left: score 0.2, 1 calls, 1 actions; {"position":1}\n')

    @pytest.mark.slow
    def test_so_it_does_while_java_is_asked(self) -> None:
        process = started("env=scienceworld", "task.name=find-plant")
        while "java" not in [each.name() for each in psutil.Process(process.pid).children()]:
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=HANGS_S)
        assert (process.returncode, err) == (0, "")
        assert out.endswith('=== left: score 0, 0 calls, 0 actions; {"score_raw":0.0,"moves":0}\n')

    def test_a_second_ctrl_c_ends_it_at_once(self) -> None:
        process = started(f"env={__name__}:Sealed")
        assert process.stderr is not None
        assert process.stderr.readline() == "it never opens\n"
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANGS_S)
        assert (process.returncode, err) == (-signal.SIGINT, "")

    def test_the_actor_s_texts_and_its_answer_in_scienceworld(self, play: Play) -> None:
        typed = "open door to greenhouse\ngo(location='nowhere')\nsubmit_answer\nlook_around\n"
        done = play("env=scienceworld", "task.name=find-plant", "task.index=262", typed=typed)
        assert (done.returncode, done.stderr) == (0, "")
        assert "\n\nThis room is called" in done.stdout.partition("> ")[2]  # the free observation
        assert "=== submitted: score 0, 3 calls, 2 actions; " in done.stdout

    def test_crafter(self, play: Play) -> None:
        done = play("env=crafter", "task.index=7", typed="move_north\nget_current_observation\n")
        assert (done.returncode, done.stderr) == (0, "")
        assert "\n> None\n> " in done.stdout
        assert "You face " in done.stdout.partition("> None")[2]
        assert "=== left: score 0, 2 calls, 1 actions; " in done.stdout

    def test_a_game_does_not_steer_the_terminal(self, play: Play, tmp_path: Path) -> None:
        toy = (CHECKOUT / "tests" / "toy_env.py").read_text()
        (tmp_path / "my_world.py").write_text(toy.replace("You are at field", r"\x1b[2JYou are at field"))
        done = play("env=my_world:Corridor", cwd=tmp_path)
        assert done.returncode == 0
        assert r"\x1b[2JYou are at field 0" in done.stdout
        assert "\x1b" not in done.stdout
