"""The SpeedRunner method: a whole sleep, with the inducer's side scripted and everything else real."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import envs
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.agents.actor import Actor
from speedrunner.config.compose import compose
from speedrunner.methods.method_base import SleepTools
from speedrunner.methods.speedrunner.inducer import fit_episodes
from speedrunner.methods.speedrunner.speedrunner_method import SpeedRunner
from speedrunner.store.history import History
from speedrunner.store.records import Labels, Policy, Skill, Termination
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.sleep_journal import SleepJournal
from tests.scripted_engine import Answer, Request, Script, call, overflow, say
from tests.scripted_runs import roomy, scripted_model
from tests.speedrunner.run_samples import TASK, trajectory

pytestmark = pytest.mark.process

SKILL = '''def advance() -> str:
    """Go two steps forward."""
    go_forward()
    return go_forward()'''
LIST = call("list_skills")


WRITE = call("write_skill", source=SKILL, public=True)
FINISH = call("finish", summary="Walking is quicker now.")


@pytest.fixture(scope="module")
def babyai() -> envs.TextEnv:
    return envs.make("babyai")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_policy(Policy(version=0))
        for number in range(2):
            run.append_trajectory(
                "train", 0, trajectory(f"train/{number:04d}", task=TASK, text=f"text {number}")
            )
        yield run


@pytest.fixture
def history(directory: RunDirectory) -> History:
    return History(directory.read())


@dataclass
class Night:
    """What came of a sleep."""

    policy: Policy
    tools: SleepTools
    requests: list[Request]

    @property
    def seen(self) -> list[str]:
        """What the inducer was told last, before each of its answers."""
        return [request.last for request in self.requests]


Nights = Callable[..., Awaitable[Night]]


@pytest.fixture
def night(
    babyai: envs.TextEnv,
    history: History,
    tiny_model_config: ModelConfig,
    tiny_tokenizer: ChatTokenizer,
    tmp_path: Path,
) -> Nights:
    async def night(
        script: Script,
        policy: Policy = Policy(version=0),  # noqa: B008 - immutable
        *,
        model_config: dict[str, Any] | None = None,
        **options: Any,
    ) -> Night:
        async with scripted_model(
            script, roomy(tiny_model_config, **(model_config or {})), tiny_tokenizer
        ) as engine:
            method, journal = SpeedRunner(**options), SleepJournal(tmp_path / "sleep.jsonl", 1, 1)
            actor = Actor(babyai, engine.model, compose([]))
            tools = SleepTools(method, actor, 1, Labels(episode="sleep/0001"), journal)
            learnt = await method.sleep(policy, history, tools)
            return Night(learnt, tools, engine.server.requests)

    return night


async def test_the_list_of_new_episodes_says_which_ended_in_a_loop(
    night: Nights, directory: RunDirectory
) -> None:
    directory.append_trajectory("train", 0, trajectory("train/0002", turns=trajectory().turns[1:] * 5))
    slept = await night([FINISH])
    assert (
        "; repeated no valid call 5 times with the same results, until the end\n\n" in slept.requests[0].task
    )


async def test_each_reply_says_how_many_calls_and_tokens_are_left(
    night: Nights, tiny_model_config: ModelConfig
) -> None:
    slept = await night([LIST, say("hm"), LIST, LIST], inducer_calls=4)
    assert "You have 4 calls and a context of " in slept.seen[0]
    left = [re.search(r"\((\d+) calls and (\d+) tokens left\)", text) for text in slept.seen[1:]]
    assert [int(found[1]) for found in left if found] == [3, 2, 1]  # an invalid answer counts, too
    for found, request in zip(left, slept.requests[1:], strict=True):
        assert found is not None
        assert (
            0 <= int(found[2]) - (tiny_model_config.context - len(request.prompt)) < 100
        )  # the reply's frame


async def test_the_tokens_left_on_a_chat_api_fall_by_what_the_provider_counts(night: Nights) -> None:
    def counted(prompt: int) -> Answer:
        usage = {"prompt_tokens": prompt, "completion_tokens": 10}
        return replace(LIST, edit=lambda content: {**content, "usage": usage})

    slept = await night([*map(counted, (2000, 3000, 7000)), FINISH], model_config={"api": "chat"})
    left = [int(text.rpartition(" calls and ")[2].partition(" tokens left")[0]) for text in slept.seen[1:]]
    falls = [before - after for before, after in pairwise(left)]
    assert falls == pytest.approx([1000, 4000], abs=40)  # and by what the estimates of the replies differ


async def test_the_end_of_its_calls_keeps_its_edits(night: Nights) -> None:
    kept = await night([WRITE] * 2, inducer_calls=2)
    assert kept.tools.agents[0].termination is Termination.CALL_LIMIT
    assert (len(kept.policy.skills), kept.tools.error) == (1, None)


async def test_a_context_overflow_ends_it_and_keeps_its_edits(night: Nights) -> None:
    slept = await night([WRITE, overflow()])
    assert [skill.name for skill in slept.policy.skills] == ["advance"]
    assert slept.tools.agents[0].termination is Termination.CONTEXT_OVERFLOW
    assert slept.tools.error == (
        "the context of the inducer overflowed after 1 call; the edits accepted before that are kept"
    )
    assert [edit.error for edit in slept.tools.edits] == [None]


async def test_it_is_told_when_little_of_its_context_is_left(
    night: Nights, tiny_model_config: ModelConfig
) -> None:
    roomy = (await night([LIST, LIST, FINISH])).seen[1]
    left = re.search(r"(\d+) tokens left\)\n", roomy)
    assert left
    context = tiny_model_config.context - int(left[1]) + 500
    tight = (await night([LIST, LIST, FINISH], model_config={"context": context})).seen[1]
    assert re.search(r"\(99 calls and \d{3} tokens left; finish soon\)\n", tight)


class TestAblations:
    async def test_without_private_skills_all_are_shown_to_the_actor(
        self, night: Nights, babyai: envs.TextEnv
    ) -> None:
        hidden = Skill(name="seen", public=False, created=0, edited=0)
        before = Policy(version=0, module="def seen():\n    'See.'", skills=(hidden,))
        slept = await night([call("write_skill", source=SKILL), FINISH], before, visibility="all_public")
        assert {skill.name: skill.public for skill in slept.policy.skills} == {"seen": True, "advance": True}
        assert "set_visibility" not in slept.requests[0].tools
        assert "rivate" not in slept.requests[0].system
        spec = SpeedRunner(visibility="all_public").agent(before, TASK, babyai)
        assert [skill.name for skill in spec.library.public] == ["seen"]

    async def test_what_does_not_fit_half_the_context_is_named(
        self, night: Nights, directory: RunDirectory, tiny_model_config: ModelConfig
    ) -> None:
        long = trajectory("train/0002", text="never ends")
        long.turns[0].reasoning = "so " * tiny_model_config.context
        directory.append_trajectory("train", 0, long)
        directory.append_trajectory("train", 0, trajectory("train/0003"))
        slept = await night([FINISH], interpreter="off")
        shown = slept.requests[0].task
        assert [f"train/000{number}: " in shown for number in range(4)] == [True] * 4
        assert "characters are left out here]" in shown


TEXTS = ["a" * 100, "b" * 200, "c" * 300]


def test_a_batch_that_fits_is_shown_whole() -> None:
    assert fit_episodes(TEXTS, 700, len) == (TEXTS, 1.0)


def test_the_longest_episodes_lose_their_middle_and_the_others_are_whole() -> None:
    (short, *longer), share = fit_episodes(TEXTS, 500, len)
    assert short == TEXTS[0]
    assert share == pytest.approx(500 / 602)
    gaps = [re.split(r"\n\[(\d+) characters are left out here\]\n", text) for text in longer]
    assert [(len(head), len(tail)) for head, _, tail in gaps] == [(99, 99), (99, 99)]
    assert [int(cut) for _, cut, _ in gaps] == [2, 102]
