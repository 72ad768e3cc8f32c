from __future__ import annotations

import re
from pathlib import Path

from envs import Task
from speedrunner.cli.episode_command import choose_task
from speedrunner.config.compose import compose
from speedrunner.library.library import Library
from speedrunner.runs.setup import set_up
from speedrunner.store.records import Policy
from speedrunner.store.rundir import RunDirectory
from tests.scripted_engine import call, refuse, say
from tests.scripted_runs import Runs
from tests.toy_env import Corridor


def test_an_infrastructure_error_ends_it_after_one_try(corridor: Runs) -> None:
    run = corridor(lambda request: refuse(404, "gone") if request.tools else say(""))
    done = run.cli("method=react", command="episode")
    assert done.returncode == 1
    assert "status 404: gone" in done.stderr
    assert len([request for request in run.server.requests if request.tools]) == 1


def test_the_skills_draw_the_same_numbers_in_each_call(corridor: Runs, tmp_path: Path) -> None:
    draw = 'import random\n\n\ndef draw() -> str:\n    """Draw."""\n    return str(random.random())'
    library = Library(Corridor().primitives).write(draw, sleep=1)
    with RunDirectory.open_for_writing(tmp_path / "learnt") as directory:
        directory.write_config("{}")
        directory.write_policy(library.policy(Policy(version=0)))
    run = corridor(lambda request: call("draw"), f"run.start_from={tmp_path}/learnt", "run.rollouts=0")
    printed = [run.cli("model.actor.max_calls=1", command="episode").stdout for _ in range(2)]
    first, second = (re.findall(r"0\.\d{9,}", text) for text in printed)
    assert first == second != []


def chosen(*overrides: str) -> Task:
    return choose_task(set_up(compose(overrides), plays_here=False))


def test_without_a_name_it_is_the_first_task_for_training() -> None:
    assert chosen("env=babyai") == Task("babyai", "pick_up_seq_go_to", 83810)


def test_name_and_index_can_be_given_alone() -> None:
    assert chosen("env=crafter", "task.index=7") == Task("crafter", "default", 7)
    family = ("env=scienceworld", "env.family=4")
    first = chosen(*family, "task.name=find-animal")
    assert first.name == "find-animal"
    assert first.index != chosen(*family, "task.name=find-plant").index


def test_a_name_that_is_not_trained_on_begins_with_index_0() -> None:
    assert chosen("env=babyai", "task.name=open") == Task("babyai", "open", 0)
    assert chosen("env=scienceworld", "env.family=3", "task.name=boil") == Task("scienceworld", "boil", 0)
