"""Policies of finished runs, evaluated and started from."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.drain import Drain
from speedrunner.runs.evaluation import evaluation_config
from speedrunner.runs.run import run as carry_out
from speedrunner.runs.setup import set_up
from speedrunner.runs.stored_policy import stored_policy
from speedrunner.store.run_data import load
from tests.scripted_engine import Answer, Request, ScriptedEngine, call, say
from tests.scripted_runs import CORRIDOR, PLANNED, ScriptedRun, in_process, keys
from tests.tampered_runs import names


@pytest.fixture
def learnt(learnt: ScriptedRun, tiny_tokenizer: ChatTokenizer) -> Iterator[ScriptedRun]:
    """The run, with an engine of its own, so that the run's stands as it was left."""
    with ScriptedEngine(tiny_tokenizer, learnt.server.script) as engine:
        yield ScriptedRun(learnt.folder, learnt.model_config, engine, learnt.settings)


@pytest.mark.parametrize(("version", "calls"), [("", 1), (":1", 1), (":v0", 7)])
def test_a_stored_policy_is_evaluated_without_training(
    learnt: ScriptedRun, version: str, calls: int, tmp_path: Path
) -> None:
    changes = [*learnt.arguments, "run.test_episodes=1", f"run.dir={tmp_path}"]
    setup = set_up(evaluation_config(f"{learnt.dir}{version}", changes, [CORRIDOR]))
    (reconciliation,) = asyncio.run(carry_out(setup, Console(quiet=True), Drain(print)))
    assert reconciliation.agrees
    (row,) = load(tmp_path).episodes
    assert (row.episode, row.policy, row.llm_calls) == ("test/0000/0000", 0, calls)
    assert keys(learnt.data) == PLANNED


def test_an_evaluation_has_a_directory_of_its_own_by_default(learnt: ScriptedRun) -> None:
    words = "run", f"run.start_from={learnt.dir}:1", "run.rollouts=0", "run.test_episodes=1"
    done = in_process(*words, *learnt.arguments, "--trust", CORRIDOR)
    assert done.returncode == 0, done.stderr
    (folder,) = learnt.folder.glob("run-eval-v0001-*")
    assert "they agree to the token" in done.stdout
    assert load(folder).config["run"]["start_from"] == f"{learnt.dir}:1"
    # It is not taken for this run's evaluation again, as it may have come with the run.
    settings = [*learnt.arguments, "run.test_episodes=1", f"env={CORRIDOR}"]
    with pytest.raises(InvalidConfig, match=r"already contains a run.* run.dir="):
        evaluation_config(f"{learnt.dir}:1", settings, [CORRIDOR])
    named = evaluation_config(f"{learnt.dir}:1", [*settings, f"run.dir={folder}"], [CORRIDOR])
    assert named.run.dir == str(folder)


def test_the_run_s_server_is_gone_unless_one_is_named(learnt: ScriptedRun) -> None:
    assert learnt.data.config["serving"]["url"] is not None
    trust = names(learnt.dir)
    assert evaluation_config(f"{learnt.dir}", [], trust).serving.url is None
    other = evaluation_config(f"{learnt.dir}", ["serving.url=unix:/other"], trust)
    assert other.serving.url == "unix:/other"


def two_skills(learnt: ScriptedRun, folder: Path) -> Path:
    """A copy of the run whose library has a second, newer skill, which calls the first."""
    shutil.copytree(learnt.dir, folder)
    newest = max((folder / "policies").iterdir())
    skills = newest / "skills.py"
    skills.write_text(
        skills.read_text() + '\n\ndef again() -> str:\n    """Once more."""\n    return to_flag()\n'
    )
    index = json.loads((newest / "library.json").read_text())
    index["skills"].append(index["skills"][0] | {"name": "again"})
    (newest / "library.json").write_text(json.dumps(index))
    return folder


BOTH = ["again", "to_flag"]


@pytest.mark.parametrize(
    ("part", "shown", "callable_"),
    [
        ("visible_last=0", [], BOTH),
        ("visible_last=1", ["again"], BOTH),
        ("visible_last=2", BOTH, BOTH),
        ("visible_last=9", BOTH, BOTH),
        ("hide=[]", BOTH, BOTH),
        ("hide=[to_flag]", ["again"], BOTH),
        ("hide=[again,to_flag]", [], BOTH),
        ("remove=[again]", ["to_flag"], ["to_flag"]),
        ("remove=[again,to_flag]", [], []),
    ],
)
async def test_an_evaluation_may_show_a_part_of_the_library_or_remove_skills(
    learnt: ScriptedRun, part: str, shown: list[str], callable_: list[str], tmp_path: Path
) -> None:
    """The last skills: paper, "Post-hoc Library Truncation on Voyager"."""

    def player(request: Request) -> Answer:
        own = [name for name in BOTH if name in request.tools]
        return call(own[0]) if own else call("walk", steps=9) if request.tools else say("")

    learnt.server.script = player
    source = two_skills(learnt, tmp_path / "source")
    changes = [*learnt.arguments, "run.test_episodes=1", f"library.{part}"]
    setup = set_up(evaluation_config(f"{source}", changes, [CORRIDOR]))
    assert setup.config.run.dir.endswith(part.replace("visible_last=", "-last")) == ("last" in part)
    library = setup.actor_spec(setup.initial_policy()).with_part(setup.config.library).library
    assert sorted(library.by_name) == callable_
    await carry_out(setup, Console(quiet=True), Drain(print))
    (row,) = load(setup.config.run.dir).episodes
    assert (row.success, row.llm_calls) == (True, 1)
    (asked,) = (each for each in learnt.server.requests if "walk" in each.tools)
    assert [name for name in asked.tools if name not in ("walk", "look")] == shown


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ("remove=[to_flag]", "to_flag is called by again: remove these too, or hide to_flag"),
        ("remove=[to_flg]", "there is no skill to_flg; did you mean to_flag?"),
        ("hide=[agan]", "there is no public skill agan; did you mean again?"),
    ],
)
def test_a_skill_that_cannot_be_hidden_or_removed_is_named_before_anything_is_written(
    learnt: ScriptedRun, part: str, problem: str, tmp_path: Path
) -> None:
    source = two_skills(learnt, tmp_path / "source")
    words = f"run.start_from={source}", "run.rollouts=0", f"library.{part}", f"run.dir={tmp_path / 'new'}"
    done = in_process("run", *words, *learnt.arguments, "--trust", CORRIDOR)
    assert done.stderr == f"error: run.start_from={source}:2: library.{part}: {problem}\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("method", ["opo", "react"])
def test_a_method_that_has_no_use_for_it_is_refused_before_anything_is_written(
    learnt: ScriptedRun, method: str, tmp_path: Path
) -> None:
    what = (f"env={CORRIDOR}", f"method={method}", "run.rollouts=0", "run.test_episodes=2")
    new = ("run", f"run.dir={tmp_path / 'new'}", f"run.start_from={learnt.dir}", *what)
    for how in ((), ("--dry-run",)):
        done = in_process(*new, *learnt.arguments, *how)
        assert done.stderr == (
            f"error: run.start_from={learnt.dir}:2 has 1 skills, which method {method} does not use:"
            " set method= to the one that learned them\n"
        )
    assert not (tmp_path / "new").exists()


def test_a_damaged_one_is_told_before_anything_is_written(learnt: ScriptedRun, tmp_path: Path) -> None:
    source = two_skills(learnt, tmp_path / "source")
    (max((source / "policies").iterdir()) / "skills.py").write_text("def (")
    done = in_process(
        *("run", f"run.dir={tmp_path / 'new'}", f"env={CORRIDOR}", f"run.start_from={source}"),
        *learnt.arguments,
    )
    assert done.stderr.startswith(
        f"error: run.start_from={source}: policy v0000 is no valid library: line 1:"
    )
    assert not (tmp_path / "new").exists()


def test_a_run_that_trains_shows_all_of_its_library(learnt: ScriptedRun) -> None:
    done = learnt.cli("library.visible_last=50")
    assert (
        "library.visible_last=50 works only in evaluations of a stored library: `speedrunner run"
        in done.stderr
    )


async def test_another_run_may_start_from_its_policy(learnt: ScriptedRun) -> None:
    other = ScriptedRun(learnt.folder / "other", learnt.model_config, learnt.server, learnt.settings)
    other.folder.mkdir()
    await other.play(f"run.start_from={learnt.dir}:1", "run.rollouts=2", "run.eval_every=2")
    assert [row.llm_calls for row in other.data.episodes] == [1] * 6
    assert other.data.policies.load(0) == stored_policy(f"{learnt.dir}:1")
