"""The episodes of a test task at all checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from envs import Outcome, Task
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.pages.site import Site
from speedrunner.pages.task_page import FIRST, LAST, task_page, tasks_page
from speedrunner.store.records import (
    AgentRecord,
    CallNode,
    Edit,
    Message,
    Policy,
    Skill,
    Termination,
    Turn,
)
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.page_elements import HOSTILE, Elements
from tests.speedrunner.pages.runs import CONFIG, append_test, hostile_turns
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill
from tests.speedrunner.run_samples import sleep, trajectory

SOURCE = 'def home() -> str:\n    """Go."""\n    return walk()'


@pytest.fixture
def run(tmp_path: Path) -> SmallRun:
    return learnt(tmp_path / "run")


def page(path: Path, address: str) -> str:
    found = Site(path).answer(f"runs/run/{address}", {})
    assert found.status == 200, found.content
    return found.content.decode()


def test_a_task_has_its_episodes_at_all_checkpoints(run: SmallRun) -> None:
    context = task_page(load(run.path), 1)
    assert [(each.row.checkpoint, each.row.score, each.called) for each in context["played"]] == [
        (0, 0.5, {}), (2, 1.0, {"home": 1}), (4, 1.0, {"home": 1}),
    ]  # fmt: skip
    text = page(run.path, "task/0001.html")
    assert 'href="../test/0002/0001/1.html#turn-1"' in text
    assert 'href="../library/0001.html#skill-home"' in text
    assert (context["previous"], context["following"]) == (0, None)


def test_each_called_version_of_a_skill_has_its_sleep(run: SmallRun) -> None:
    origins = task_page(load(run.path), 0)["origins"]
    found = [
        (each.sleep, skill.name, skill.change, skill.checkpoints) for each in origins for skill in each.skills
    ]
    assert found == [(1, "home", "written", [2]), (2, "home", "edited", [4])]
    assert 'href="../sleep/0002/1.html">Sleep 2</a>' in page(run.path, "task/0000.html")


def test_skills_that_only_other_code_called_have_their_sleep_too(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.policy(1, {"home": "return _step()", "_step": "return walk()"})
    run.test(2, 1, [0.0], [skill("home", 4, None, skill("_step"))])
    with RunDirectory.open_for_writing(run.path) as writing:
        source = f"{SOURCE.replace('walk()', '_step()')}\n\n\ndef _step() -> str:\n    return walk()"
        skills = (
            Skill(name="home", public=True, created=1, edited=1),
            Skill(name="_step", public=False, created=1, edited=3),
        )
        writing.write_policy(Policy(version=3, module=source, skills=skills))
    run.test(4, 3, [1.0], [skill("home", 4, None, skill("_step"))])
    origins = task_page(load(run.path), 0)["origins"]
    assert [[(each.sleep, own.name, own.checkpoints) for own in each.skills] for each in origins] == [
        [(1, "home", [2, 4]), (1, "_step", [2])],
        [(3, "_step", [4])],
    ]


def test_the_turn_that_wrote_a_skill_and_the_episodes_that_its_sleep_names_are_linked(tmp_path: Path) -> None:
    code = "for play in load_trajectories(): print(headline(play))"
    printed = "train/0001: success"
    ran = CallNode("execute_code", "tool", {"code": code}, printed)
    prompt = Message("user", "train/0000: success")
    turns = [
        Turn([prompt], "", Usage(), 0.1, call=ToolCall("execute_code", {"code": code}), executed=ran),
        Turn([Message("tool", printed)], "", Usage(), 0.1, call=ToolCall("write_skill", {"source": SOURCE})),
    ]
    agent = AgentRecord("inducer", turns, Termination.SUBMITTED)
    record = replace(sleep(), agents=[agent], edits=[Edit("write", "home", source=SOURCE)])
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.train(0, [None], [None])
    with RunDirectory.open_for_writing(run.path) as writing:
        writing.write_sleep(record)
        writing.write_policy(
            Policy(version=1, module=SOURCE, skills=(Skill(name="home", public=True, created=1, edited=1),))
        )
    run.test(2, 1, [1.0], [skill("home", 4)])
    text = page(run.path, "task/0000.html")
    assert 'written in <a href="../sleep/0001/1.html#turn-2">turn 2</a>' in text
    assert 'name <a href="../train/0001/1.html">train/0001</a>.' in text
    assert "Its code loaded recorded episodes in 1 turn, first in" in text
    assert text.count("Records do not say which of the loaded episodes a sleep looked at.") == 1
    assert (
        '<summary>1 episode in its prompt</summary><p><a href="../train/0000/1.html">train/0000</a>' in text
    )


def test_tasks_whose_score_changed_most_come_first(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.test(0, 0, [1.0, 0.0, 1.0, None], [None] * 3)
    run.test(4, 0, [1.0, 0.5, 0.0, 1.0], [None])
    tasks = tasks_page(load(run.path))["tasks"]
    assert [(line.number, line.gain) for line in tasks] == [(2, -1.0), (1, 0.5), (0, 0.0), (3, None)]
    text = page(run.path, "tasks.html")
    assert '<a href="task/0002.html">2</a>' in text
    assert "3 → 1" in text


def test_long_episodes_are_shown_in_short_and_equal_turns_are_merged(tmp_path: Path) -> None:
    count = FIRST + LAST + 5
    turns = [
        Turn(
            [],
            "",
            Usage(),
            0.1,
            executed=CallNode("go_forward", "primitive", {}, f"cell {max(n, 3)}", actions=1),
        )
        for n in range(count)
    ]
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config(CONFIG)
        append_test(run, trajectory("test/0000/0000", turns=turns))
    (played,) = task_page(load(tmp_path / "run"), 0)["played"]
    assert (played.start[0].times, played.start[1].number, played.left_out) == (4, 5, 5)
    assert [each.number for each in played.end] == [*range(count - LAST + 1, count + 1)]
    assert "5 turns are not shown here." in page(tmp_path / "run", "task/0000.html")


def test_text_from_a_run_stays_text(tmp_path: Path) -> None:
    task = Task(HOSTILE, HOSTILE, 7)
    played = trajectory("test/0000/0000", task=task, turns=hostile_turns(), outcome=Outcome(1.0, True, {}))
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_config(CONFIG)
        append_test(run, played)
    for address in ("tasks.html", "task/0000.html"):
        text = page(tmp_path / "run", address)
        found = Elements(text)
        assert found.names.count("script") == 1
        assert "img" not in found.names
        assert "\x1b" not in text
        assert "alert(1)" in found.text


def test_a_number_that_no_task_has_says_so(run: SmallRun) -> None:
    found = Site(run.path).answer("runs/run/task/0009.html", {})
    assert found.status == 404
    assert "no finished episode plays test task 9" in found.content.decode()
