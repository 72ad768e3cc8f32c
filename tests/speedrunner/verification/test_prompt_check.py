"""Prompts that do not continue the ones before them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speedrunner.verification.prompt_check import check_prompts
from tests.scripted_engine import Answer, Request, cut, say
from tests.scripted_runs import Runs, ScriptedRun, script, walker
from tests.tampered_runs import change, copy_of, subject, told


def more(tokens: int, turn: int) -> Any:
    """A prompt of a turn that has so many tokens more."""

    def edit(record: Any) -> None:
        usage = record["turns"][turn]["usage"]
        usage |= {"prompt": usage["prompt"] + tokens, "cached": 0}

    return edit


@pytest.mark.parametrize(
    ("tokens", "turn", "expected"),
    [
        (1, 1, "test/0000/0000, turn 2: its prompt has "),
        (-100, 1, "test/0000/0000, turn 2: its prompt has "),
        (-1, 0, "test/0000/0000, turn 1: tokens of the first prompt"),
    ],
)
def test_a_prompt_of_another_length(
    learnt: ScriptedRun, tmp_path: Path, tokens: int, turn: int, expected: str
) -> None:
    run = copy_of(learnt.dir, tmp_path)
    line = [each.episode for each in learnt.data.evaluations(0)].index("test/0000/0000")
    change(run, "evaluations/0000.jsonl", more(tokens, turn), line)
    found = told(check_prompts(subject(run)))
    assert any(each.startswith(expected) for each in found), found


def test_another_reply(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)

    def edit(record: Any) -> None:
        record["turns"][1]["messages"][0]["content"] += " And a door."

    change(run, "trajectories/batch_0000.jsonl", edit)
    (difference,) = told(check_prompts(subject(run)))
    assert ", turn 2: its prompt has " in difference


def test_another_first_prompt_of_the_same_length(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)

    def edit(record: Any) -> None:
        system = record["turns"][0]["messages"][0]
        system["content"] = system["content"].replace("corridor", "corridoR", 1)

    change(run, "trajectories/batch_0000.jsonl", edit)
    (difference,) = told(check_prompts(subject(run)))
    assert difference.endswith(", turn 1: the first prompt does not have its recorded digest")


def test_a_reply_in_a_sleep(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = copy_of(learnt.dir, tmp_path)
    change(run, "sleeps/0001.json", lambda record: more(3, 1)(record["agents"][0]))
    (difference,) = told(check_prompts(subject(run)))
    assert difference.startswith("sleep/0001, turn 2: its prompt has ")


async def test_without_the_model_s_own_tokenizer_the_recorded_usage_is_all_there_is(
    learnt: ScriptedRun, tmp_path: Path
) -> None:
    run = copy_of(learnt.dir, tmp_path)

    def edit(record: Any) -> None:
        record["models"]["tiny-random"]["tokenizer.json"] = "another"

    change(run, "processes.jsonl", edit)
    check = check_prompts(subject(run))
    assert check.level == "ok"
    assert "replies composed again in 0, recorded usage alone in 20); 0 first prompts" in check.text


async def test_answers_that_are_cut_or_no_calls(corridor: Runs) -> None:
    """The reply is framed as a user's then, and the end of a turn that is missing is added."""

    def actor(request: Request) -> Answer:
        if request.turn == 0:
            return say("Hm.")
        return cut(say("Well then, we go on")) if request.turn == 1 else walker(request)

    run = corridor(script(actor), "run.rollouts=1", "run.test_episodes=0")
    await run.play()
    (played,) = run.data.trajectories()
    assert [turn.call is None for turn in played.turns][:3] == [True, True, False]
    check = check_prompts(subject(run.dir))
    assert check.level == "ok", told(check)
    assert "recorded usage alone in 0" in check.text


async def test_routes_of_messages_are_not_checked(corridor: Runs) -> None:
    run = corridor(script(), "run.rollouts=1", "run.test_episodes=0", api="chat", thinking="none")
    await run.play()
    assert check_prompts(subject(run.dir)).level == "not checked"


def test_roles_of_one_episode_are_conversations_of_their_own(programmed: ScriptedRun) -> None:
    assert check_prompts(subject(programmed.dir)).level == "ok"
