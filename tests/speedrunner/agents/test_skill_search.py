"""The actor that searches its library, in an evaluation over a scripted engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from serving.tokens.tools import ToolCall
from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig
from speedrunner.results.skill_table import skill_history
from speedrunner.runs.planned_runs import PlannedRun
from speedrunner.runs.player import play_runs
from speedrunner.runs.setup import set_up
from speedrunner.runs.shutdown import Shutdown
from speedrunner.runs.stored_setup import evaluation_config
from speedrunner.store.records import Termination
from speedrunner.store.run_data import load
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import call
from tests.scripted_runs import CORRIDOR, ScriptedRun, script
from tests.speedrunner.runs.test_stored_policy import evaluation_of, two_skills
from tests.tampered_runs import change, statuses, verified

ANSWERS = (
    call("search_skills", query="walk to the flag"),
    call("call_skill", name="to_flog"),
    call("call_skill", name="walk", arguments='{"steps": 1}'),
    call("call_skill", name="to_flag", arguments="now"),
    call("call_skill", name="to_flag", arguments='{"steps": 3}'),
    call("again"),
    call("walk", steps=1),
    call("call_skill", name="again", arguments='{"times": 2}'),
)
REPLIES = (
    "to_flag(): Walk to the flag, wherever it stands. Returns what is seen there."
    "\n\nagain(times: int): Once more.",
    "Error: there is no skill to_flog; did you mean to_flag?",
    "Error: there is no skill walk; available: again, to_flag",
    "Error: arguments must be the text of a JSON object, such as {}: ",
    "Error: to_flag: unknown argument 'steps'; allowed: none",
    "Error: there is no tool 'again'; available: walk, look, search_skills, call_skill.",
    "You are at field 1",
)


async def test_it_plays_with_skills_that_it_finds(learnt_copy: ScriptedRun, tmp_path: Path) -> None:
    learnt_copy.server.script = script(lambda request: ANSWERS[request.turn])
    source = two_skills(learnt_copy, tmp_path / "source")
    skills = max((source / "policies").iterdir()) / "skills.py"
    skills.write_text(skills.read_text().replace("again()", "again(times: int)"))
    setup = evaluation_of(learnt_copy, source, "shown=search")
    assert setup.config.run.dir.endswith("-search")
    await play_runs([PlannedRun(setup)], Console(quiet=True), Shutdown(print))
    run = load(setup.config.run.dir)

    asked = [list(each.tools) for each in learnt_copy.server.requests if each.tools]
    assert asked == [["walk", "look", "search_skills", "call_skill"]] * len(ANSWERS)
    (episode,) = run.evaluations()
    read = [turn.messages[-1].content for turn in episode.turns[1:]]
    assert [text[: len(reply)] for text, reply in zip(read, REPLIES, strict=True)] == [*REPLIES]
    executed = [(turn.executed.kind, turn.executed.name) for turn in episode.turns if turn.executed]
    failed = [("tool", "call_skill")] * 4
    assert executed == [
        *(("tool", "search_skills"), *failed, ("primitive", "walk"), ("skill", "again")),
    ]
    last = episode.turns[-1]
    assert last.call == ToolCall("call_skill", {"name": "again", "arguments": '{"times": 2}'})
    assert last.executed is not None
    assert last.executed.arguments == {"times": 2}
    assert [below.name for below in last.executed.calls] == ["to_flag"]
    (row,) = run.episodes
    assert (row.llm_calls, row.actions, row.skill_calls, row.invalid_calls) == (8, 2, 1, 1)
    assert row.termination is Termination.SUCCESS
    counts = {each.name: (each.calls, each.inner_calls) for each in skill_history(run).versions}
    assert counts == {"again": (1, 0), "to_flag": (0, 1)}

    assert set(statuses(await verified(run.path)).values()) == {"ok"}

    def edit(record: Any) -> None:
        record["turns"][-1]["call"]["arguments"]["name"] = "to_flag"

    change(run.path, "evaluations/0000.jsonl", edit)
    assert statuses(await verified(run.path))["replay"] == "failed"


@pytest.mark.parametrize("changes", [["method=react"], ["library.visible_last=0"]])
def test_an_actor_without_skills_is_refused(learnt_copy: ScriptedRun, changes: list[str]) -> None:
    given = [*learnt_copy.arguments, "library.shown=search", *changes]
    setup = set_up(evaluation_config(f"{learnt_copy.dir}", given, [CORRIDOR]))
    with pytest.raises(RunDirectoryError, match=r"library\.shown=search: the actor has no skills to search"):
        setup.initial_policy()


def test_training_runs_have_each_skill_as_a_tool() -> None:
    with pytest.raises(InvalidConfig, match=r"library\.shown=search works only in evaluations"):
        compose(["library.shown=search"])
