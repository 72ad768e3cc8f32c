"""`speedrunner library`: damaged libraries, and skills that people try. See also the transcripts."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import psutil
import pytest

from tests.scripted_runs import CORRIDOR, ScriptedRun, complaint, in_process, speedrunner
from tests.skill_modules import MODULE

pytestmark = pytest.mark.process

DEEP = f"X = {'-' * 5000}1"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "skills.py"
    path.write_text(MODULE)
    return path


@pytest.mark.parametrize(
    ("command", "old", "new", "reason"),
    [(command, "import re", DEEP, "nested too deeply") for command in ("show", "diff")],
)
def test_a_stored_version_that_breaks_the_rules_is_one_error(
    learnt: ScriptedRun, tmp_path: Path, command: str, old: str, new: str, reason: str
) -> None:
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    module = run / "policies" / "v0002" / "skills.py"
    source = module.read_text()
    assert old in source
    module.write_text(source.replace(old, new))
    failed = in_process("library", command, str(run), "2")
    assert complaint(failed).startswith(f"{run}: policy v0002 is no valid library: ")
    assert reason in failed.stderr
    assert failed.stdout == ""


def test_a_fifo_is_not_waited_for(module: Path) -> None:
    module.unlink()
    os.mkfifo(module)
    reason = "cannot be read: it is a folder, a pipe or a device, not a regular file"
    assert in_process("library", "check", str(module)).stdout == f"{module}: {reason}\n"


@pytest.mark.parametrize("arguments", ["[" * 20_000, '{"steps": ' + "[" * 20_000, "\udcff"])
def test_arguments_that_are_no_json_are_refused(module: Path, arguments: str) -> None:
    words = ("library", "try", str(module), "twice", "--arguments", arguments, f"env={CORRIDOR}", "--json")
    done = in_process(*words)
    assert done.returncode == 1
    assert "the arguments must be a JSON object" in json.loads(done.stdout)["error"]


def test_a_name_that_is_no_text_is_refused(module: Path) -> None:
    done = in_process("library", "try", str(module), "twi\udcff", f"env={CORRIDOR}", "--json")
    assert done.returncode == 1
    assert "there is no skill twi\\udcff; did you mean twice?" in json.loads(done.stdout)["error"]


def test_one_that_never_ends_is_killed_and_leaves_nothing(module: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    words = ("library", "try", str(module), "stay", f"env={CORRIDOR}", "--json")
    for limit_s in (1, 30, 300):  # on a busy machine, the first may end before the skill has walked
        done = speedrunner(*words, f"sandbox.call_wall_s={limit_s}", env={"TMPDIR": str(scratch)})
        found = json.loads(done.stdout)
        if found["actions"]:
            break
    assert done.returncode == 1
    # The limit gives way where the machine is slow to start.
    limit = r"TimeLimitReached: stopped at the time limit of [\d.]+ s; the skill process was killed"
    assert re.match(limit, found["error"]), found["error"]
    assert (found["actions"], found["done"]) == (1, False)
    assert {each.pid for each in psutil.Process().children(recursive=True)} == before
    assert list(scratch.iterdir()) == []
    assert not [each for each in psutil.process_iter(["environ"]) if _has(each, str(scratch))]


def _has(process: psutil.Process, scratch: str) -> bool:
    """Whether a process is one of the command's, which have its environment variables."""
    return process.pid != os.getpid() and scratch in (process.info["environ"] or {}).values()


@pytest.mark.slow
def test_choices_of_texts_are_checked_with_the_model_s_tokenizer(tmp_path: Path) -> None:
    module = tmp_path / "skills.py"
    module.write_text(
        "from typing import Literal\n\n"
        'def turn(way: Literal["left", "<|im_end|>"]) -> str:\n'
        '    """Turn."""\n    return turn_left()\n'
    )
    done = in_process("library", "check", str(module))
    assert done.stdout == (f"{module} is valid: 1 skills, 1 of them public, for babyai and tiny-random\n"), (
        done.stderr
    )
    assert "xgrammar" in sys.modules
