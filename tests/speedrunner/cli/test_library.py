"""`speedrunner library`: what people see of libraries, and what becomes of a skill that they try."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner, Result

from speedrunner.cli.main import app
from speedrunner.store.files import StorageError
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_runs import CORRIDOR, TO_FLAG, ScriptedRun, speedrunner

pytestmark = pytest.mark.process

MODULE = f'''{TO_FLAG}


def _peek() -> str:
    """Look."""
    return look()


def twice(steps: int, direction: str = "right") -> str:
    """Walk twice."""
    return walk(steps, direction) + " " + walk(steps, direction)


def fall() -> str:
    """Walk into the pit, and on."""
    walk(steps=-5)
    return walk()


def stumble() -> str:
    """Go wrong."""
    look()
    return 1 / 0


def stay() -> str:
    """Never come back."""
    walk()
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
'''
FIELD = "You are at field {}. The flag is at field 6."


def library(*arguments: object) -> Result:
    """The command in this process; runs may name the corridor."""
    trust = ["--trust", CORRIDOR] if arguments[0] == "graph" else []
    return CliRunner().invoke(app, ["library", *map(str, arguments), *trust])


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "skills.py"
    path.write_text(MODULE)
    return path


class TestStoredVersions:
    def test_the_newest_is_shown_by_default(self, learnt: ScriptedRun) -> None:
        shown = library("show", learnt.dir)
        assert shown.exit_code == 0
        assert shown.stdout.startswith("import re\n\n\n# public, from sleep 1\ndef to_flag() -> str:\n")
        assert library("show", learnt.dir, 0).stdout == "(the library is empty)\n"

    def test_a_diff_is_to_the_version_before(self, learnt: ScriptedRun) -> None:
        lines = library("diff", learnt.dir, 1).stdout.splitlines()
        assert lines[:2] == ["--- v0000", "+++ v0001"]
        assert "+def to_flag() -> str:" in lines
        assert library("diff", f"{learnt.dir}:1").stdout.splitlines() == lines
        assert library("diff", learnt.dir).stdout == "v0002 changed nothing\n"
        assert library("diff", learnt.dir, 0).stdout == "v0000 changed nothing\n"

    def test_any_two_versions_are_compared_also_those_of_two_runs(
        self, learnt: ScriptedRun, tmp_path: Path
    ) -> None:
        assert library("diff", f"{learnt.dir}:2", ":0").stdout.startswith("--- v0002\n+++ v0000\n")
        assert library("diff", f"{learnt.dir}:1", ":2").stdout == "v0001 and v0002 are the same\n"
        other = shutil.copytree(learnt.dir, tmp_path / "other")
        (other / "policies" / "v0002" / "notes.md").write_text("Walls hurt.")
        lines = library("diff", f"{learnt.dir}:1", other).stdout.splitlines()
        assert lines[:2] == [f"--- {learnt.dir}:v0001", f"+++ {other}:v0002"]
        assert [line for line in lines[2:] if line[0] in "+-"] == [
            "+",
            "+# notes for the actor",
            "+Walls hurt.",
        ]
        missing = library("diff", learnt.dir, ":7")
        assert isinstance(missing.exception, RunDirectoryError)

    def test_notes_are_shown(self, learnt: ScriptedRun, tmp_path: Path) -> None:
        run = shutil.copytree(learnt.dir, tmp_path / "run")
        (run / "policies" / "v0000" / "notes.md").write_text("Walls \x1b[2Jhurt.")
        assert library("show", run, 0).stdout == "# notes for the actor\nWalls \\x1b[2Jhurt.\n"

    def test_the_graph_knows_the_environment_s_primitives(self, learnt: ScriptedRun) -> None:
        assert library("graph", learnt.dir).stdout == "to_flag (public)\n  look, walk\n"
        assert library("graph", learnt.dir, 0).stdout == "(the library is empty)\n"

    @pytest.mark.parametrize("command", ["show", "diff", "graph"])
    def test_what_does_not_exist_is_named(self, learnt: ScriptedRun, command: str) -> None:
        missing = library(command, learnt.dir, 7)
        assert isinstance(missing.exception, RunDirectoryError)
        assert "has no policy v0007; it has v0000 to v0002" in str(missing.exception)

    @pytest.mark.parametrize(
        ("command", "old", "new", "reason"),
        [
            ("graph", '    """', "    #", "needs a docstring"),
            ("graph", "import re", "X = print(1)", "the constant X must be a literal value"),
            ("graph", "def to_flag", "async def to_flag", "async code is not allowed in a skill"),
            ("graph", "import re", f"X = {'-' * 1000}1", "the code is nested too deeply"),
        ],
    )
    def test_a_stored_version_that_breaks_the_rules_is_one_error(
        self, learnt: ScriptedRun, tmp_path: Path, command: str, old: str, new: str, reason: str
    ) -> None:
        run = shutil.copytree(learnt.dir, tmp_path / "run")
        module = run / "policies" / "v0002" / "skills.py"
        source = module.read_text()
        assert old in source
        module.write_text(source.replace(old, new))
        failed = library(command, run, 2)
        assert isinstance(failed.exception, StorageError)  # told in one line
        assert str(failed.exception).startswith(f"{run}: policy v0002 is no valid library: ")
        assert reason in str(failed.exception)
        assert failed.stdout == ""

    @pytest.mark.parametrize("command", ["graph", "show", "diff"])
    def test_a_stored_version_that_is_nested_beyond_reading_is_one_error(
        self, learnt: ScriptedRun, tmp_path: Path, command: str
    ) -> None:
        run = shutil.copytree(learnt.dir, tmp_path / "run")
        module = run / "policies" / "v0002" / "skills.py"
        module.write_text(module.read_text().replace("import re", f"X = {'-' * 5000}1"))
        failed = library(command, run, 2)
        assert isinstance(failed.exception, StorageError)
        assert "v0002 is no valid library: line 3: the code is nested too deeply" in str(failed.exception)
        assert failed.stdout == ""


class TestCheck:
    def test_a_valid_module(self, module: Path) -> None:
        checked = library("check", module, f"env={CORRIDOR}")
        assert (
            checked.stdout
            == f"{module} is valid: 6 skills, 5 of them public, for {CORRIDOR} and tiny-random\n"
        )
        assert checked.exit_code == 0

    def test_every_error_is_printed_with_its_line(self, module: Path) -> None:
        module.write_text(MODULE.replace("steps: int, direction", "steps, direction") + "import os\n")
        checked = library("check", module, f"env={CORRIDOR}")
        assert checked.exit_code == 1
        lines = checked.stdout.splitlines()
        assert [line.split(": ")[1] for line in lines] == ["line 14", "line 40"]
        assert "the parameter steps needs a type" in lines[0]

    def test_a_class_that_cannot_be_defined(self, module: Path) -> None:
        module.write_text(f"class W:\n    x = 1 / 0\n\n\n{MODULE}".replace("return look()", "return W.x"))
        checked = library("check", module, f"env={CORRIDOR}")
        assert checked.exit_code == 1
        assert checked.stdout == (
            f"{module}: the class W fails when the library is loaded, in its line 2:"
            " ZeroDivisionError: division by zero\n"
        )

    def test_names_are_those_of_the_environment(self, module: Path) -> None:
        checked = library("check", module, "env=babyai")
        assert f"{module}: line 5: look is not defined; available: " in checked.stdout

    def test_a_fifo_is_not_waited_for(self, module: Path) -> None:
        module.unlink()
        os.mkfifo(module)
        assert (
            library("check", module).stdout
            == f"{module}: cannot be read: it is no regular file but a folder, a pipe or a device\n"
        )

    def test_a_file_that_is_no_text(self, module: Path) -> None:
        module.write_bytes(b"\xff")
        assert library("check", module).stdout.startswith(f"{module}: is no text in UTF-8: ")
        module.unlink()
        assert library("check", module).stdout == f"{module}: cannot be read: no such file or directory\n"

    def test_what_no_edit_could_write_is_not_valid(self, module: Path) -> None:
        module.write_text(f"X = '{'x' * 300_000}'\n\n\n{MODULE}".replace("return look()", "return X"))
        checked = library("check", module, f"env={CORRIDOR}")
        assert checked.exit_code == 1
        assert checked.stdout == f"{module}: line 1: X has 300006 characters; 20000 are allowed\n"

    def test_types_that_take_a_huge_grammar(self, module: Path) -> None:
        module.write_text(MODULE.replace("steps: int", f"steps: {'list[' * 20}int{']' * 20}"))
        checked = library("check", module, f"env={CORRIDOR}")
        assert checked.exit_code == 1
        assert "its type is nested more than 4 levels deep" in checked.stdout


def tried(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Exit status and object of `library try --json` in the corridor, six fields from the flag."""
    done = library("try", *arguments, f"env={CORRIDOR}", "task.index=6", "--json")
    assert done.exception is None or isinstance(done.exception, SystemExit)
    found = json.loads(done.stdout)
    assert list(found) == ["result", "error", "calls", "actions", "done", "score"]
    return done.exit_code, found


class TestTry:
    def test_a_skill_s_argument_given_as_a_setting_is_told_its_place(self, module: Path) -> None:
        done = library("try", module, "twice", f"env={CORRIDOR}", "steps=1")
        assert str(done.exception).endswith(
            """; twice is given its own arguments by --arguments '{"steps": 1}'"""
        )

    def test_a_skill_that_returns(self, module: Path) -> None:
        status, found = tried(module, "twice", "--arguments", '{"steps": 1}')
        calls = found.pop("calls")
        assert status == 0
        assert found == {
            "result": f"{FIELD.format(1)} {FIELD.format(2)}",
            "error": None,
            "actions": 2,
            "done": False,
            "score": pytest.approx(1 / 3),
        }
        assert (calls["name"], calls["kind"], calls["actions"]) == ("twice", "skill", 2)
        assert [(each["name"], each["arguments"]) for each in calls["calls"]] == [
            ("walk", {"steps": 1, "direction": "right"})
        ] * 2

    def test_one_that_ends_the_episode(self, module: Path) -> None:
        status, found = tried(module, "to_flag")
        assert (status, found["done"], found["score"]) == (0, True, 1.0)

    def test_private_ones_can_be_tried_too(self, module: Path) -> None:
        status, found = tried(module, "_peek")
        assert (status, found["result"]) == (0, FIELD.format(0))

    def test_one_that_fails(self, module: Path) -> None:
        status, found = tried(module, "stumble")
        assert (status, found["result"]) == (1, None)
        assert found["error"].startswith("ZeroDivisionError: division by zero (in stumble, line 4)")
        assert [each["name"] for each in found["calls"]["calls"]] == ["look"]

    def test_one_that_goes_on_after_the_end(self, module: Path) -> None:
        status, found = tried(module, "fall")
        assert (status, found["done"], found["score"], found["actions"]) == (1, True, 0.0, 1)
        assert found["error"].startswith("EpisodeEnded: ")

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (("twise",), "there is no skill twise; did you mean twice?"),
            (("walk",), "there is no skill walk"),
            (("twice",), "twice: argument 'steps' is missing"),
            (
                ("twice", "--arguments", '{"step": 1}'),
                "unknown argument 'step'; allowed: steps, direction",
            ),
            (("twice", "--arguments", '{"steps": "1"}'), "twice: '1' at steps is not of type integer"),
            (("twice", "--arguments", "[1]"), "the arguments are no JSON object"),
            (("twice", "--arguments", "{"), "the arguments are no JSON object"),
            (("twice", "--arguments", "[" * 20_000), "the arguments are no JSON object"),
            (("twice", "--arguments", '{"steps": ' + "[" * 20_000), "the arguments are no JSON object"),
            (("twice", "--arguments", "\udcff"), "the arguments are no JSON object"),
            (("twi\udcff",), "there is no skill twi\\udcff; did you mean twice?"),
        ],
    )
    def test_a_call_that_is_refused(self, module: Path, arguments: tuple[str, ...], error: str) -> None:
        status, found = tried(module, *arguments)
        assert status == 1
        assert error in found["error"]
        assert (found["calls"], found["score"], found["actions"]) == (None, None, 0)

    def test_a_module_that_is_refused(self, module: Path) -> None:
        module.write_text(MODULE.replace("1 / 0", "fly()"))
        status, found = tried(module, "to_flag")
        assert status == 1
        assert found["error"].startswith("line 28: fly is not defined")

    @pytest.mark.parametrize(
        ("overrides", "error"),
        [
            (("task.indx=3",), "task.indx"),
            (("env=nowhere",), "nowhere"),
            (("no override",), "no override"),
        ],
    )
    def test_overrides_that_name_nothing_are_told_in_the_object_too(
        self, module: Path, overrides: tuple[str, ...], error: str
    ) -> None:
        done = library("try", module, "twice", "--json", *overrides)
        assert done.exit_code == 1
        found = json.loads(done.stdout)
        assert list(found) == ["result", "error", "calls", "actions", "done", "score"]
        assert error in found["error"]
        assert (found["result"], found["calls"]) == (None, None)

    def test_a_file_that_there_is_not(self, module: Path) -> None:
        module.unlink()
        status, found = tried(module, "twice")
        assert (status, found["error"]) == (1, f"{module}: cannot be read: no such file or directory")

    def test_an_environment_that_breaks(self, module: Path) -> None:
        status, found = tried(module, "twice", "--arguments", '{"steps": 3}', "task.name=broken_step")
        assert status == 1
        assert "RuntimeError: the floor broke" in found["error"]

    def test_one_that_never_ends_is_killed_and_leaves_nothing(self, module: Path, tmp_path: Path) -> None:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        before = {each.pid for each in psutil.Process().children(recursive=True)}
        done = speedrunner(
            *("library", "try", str(module), "stay", f"env={CORRIDOR}", "sandbox.call_wall_s=1", "--json"),
            env={"TMPDIR": str(scratch)},
            timeout_s=60,
        )
        found = json.loads(done.stdout)
        assert done.returncode == 1
        # The limit gives way where the machine is slow to start.
        limit = r"TimeLimitReached: stopped at the time limit of (1|0\.\d+) s; the skill process was killed"
        assert re.match(limit, found["error"]), found["error"]
        assert (found["actions"], found["done"]) == (1, False)
        assert {each.pid for each in psutil.Process().children(recursive=True)} == before
        assert list(scratch.iterdir()) == []
        assert not [each for each in psutil.process_iter(["environ"]) if _has(each, str(scratch))]

    def test_without_json_the_tree_is_printed(self, module: Path) -> None:
        done = library("try", module, "_peek", f"env={CORRIDOR}", "task.index=6")
        assert done.stdout.splitlines() == [
            "_peek()",
            "  look() -> You are at field 0. The flag is at field 6.",
            "  -> You are at field 0. The flag is at field 6.",
            "0 actions, score 0, the episode goes on",
        ]


def _has(process: psutil.Process, scratch: str) -> bool:
    """Whether a process is one of the command's, which have its environment variables."""
    return process.pid != os.getpid() and scratch in (process.info["environ"] or {}).values()
