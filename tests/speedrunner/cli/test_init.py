"""`speedrunner init`: what it writes works as it is, and nothing is overwritten. `speedrunner list`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from speedrunner.config import compose
from tests.scripted_runs import complaint, in_process, speedrunner


@pytest.mark.process
def test_a_fresh_environment_method_and_card_pass_their_checks_and_tests(tmp_path: Path) -> None:
    for kind, name in (("env", "treasure_hunt"), ("method", "diary"), ("card", "qwen-9.b")):
        assert in_process("init", kind, name, str(tmp_path / "mine")).returncode == 0
    here = tmp_path / "mine"
    assert sorted(file.name for file in here.iterdir()) == [
        *("diary.py", "qwen-9.b.yaml", "test_diary.py", "test_qwen_9_b.py", "test_treasure_hunt.py"),
        "treasure_hunt.py",
    ]
    for command in (
        ["check", "env", "treasure_hunt:TreasureHunt", "width=5", "--calls", "30"],
        ["check", "method", "diary:Diary", "llm_calls=5", "env=treasure_hunt:TreasureHunt"],
        ["serve", "model.card=qwen-9.b.yaml", "--print"],
    ):
        done = speedrunner(*command, cwd=here)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--deselect"]
    conforms = "test_diary.py::test_it_conforms"  # which was tried above
    done = subprocess.run([*test, conforms], cwd=here, capture_output=True, text=True)
    assert "4 passed, 1 deselected" in done.stdout, done.stdout


def test_it_says_what_it_wrote_and_what_to_try(tmp_path: Path) -> None:
    lines = in_process("init", "env", "maze", str(tmp_path)).stdout.splitlines()
    assert lines[:2] == [f"wrote {tmp_path / 'maze.py'}", f"wrote {tmp_path / 'test_maze.py'}"]
    assert "  speedrunner check env maze:Maze" in lines


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "test_maze.py").write_text("mine")
    line = complaint(in_process("init", "env", "maze", str(tmp_path)))
    assert line == f"{tmp_path / 'test_maze.py'} is there already: give another name or folder"
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("env", "my world", "no env can be called 'my world': give a name of letters, digits and _"),
        ("method", "class", "no method can be called 'class'"),
        ("card", "../up", "no card can be called '../up': give a name of letters, digits, _, . and -"),
        ("method", "policy", "Policy is a class that methods work with: give another name"),
        ("method", "json", "json is an installed module, which would be imported in its place"),
    ],
)
def test_a_name_must_do(kind: str, name: str, said: str, tmp_path: Path) -> None:
    assert said in complaint(in_process("init", kind, name, str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        ("envs", ["babyai        BabyAI-Text (paper, section 4.2.2): one room", "or package.module:Class"]),
        ("methods", ["react        ReAct (paper, section 4.1): primitives only", "or package.module:Class"]),
        (
            "models",
            ["tiny-hybrid              The bundled model for trying", "or model.card=PATH/TO/CARD.yaml"],
        ),
        ("experiments", ["demo         Wake-sleep learning on a laptop"]),
    ],
)
def test_list_says_what_can_be_named(what: str, lines: list[str]) -> None:
    printed = in_process("list", what).stdout
    for line in lines:
        assert f"\n{line}" in f"\n{printed}"
    assert "custom" not in printed


def test_list_takes_a_file_that_says_nothing_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text("name: my_world:World\n")
    monkeypatch.setattr(compose, "CONFIGS", tmp_path)
    done = in_process("list", "envs")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "mine")
