"""What prompts must and must not say. Their wording is in golden files: see `test_rendered_prompts.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import envs
from speedrunner.agents.actor import ActorSpec
from speedrunner.agents.rendering import render
from speedrunner.methods.ace import ACE
from speedrunner.methods.asi import ASI
from speedrunner.methods.opo import OPO
from speedrunner.methods.react import ReAct
from speedrunner.methods.speedrunner.speedrunner_method import SpeedRunner
from speedrunner.methods.voyager.voyager_method import Voyager
from speedrunner.store.records import Policy
from tests.prompt_samples import Prompt, Samples

ACTOR = "speedrunner.agents"


@pytest.fixture
def babyai(tmp_path: Path) -> Samples:
    return Samples(envs.make("babyai"), tmp_path)


def sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.?!:;])\s+|\n", re.sub(r"```python\n.*?\n```", "", text, flags=re.DOTALL))
    return [part.strip(" -.").lower() for part in parts if len(part.strip(" -.")) > 15]


def said(prompt: Prompt) -> str:
    """What a prompt says in prose."""
    return "\n".join([*(each["content"] for each in prompt.messages), *(tool.doc for tool in prompt.tools)])


@pytest.mark.parametrize("skills", [0, 1])
def test_actor_and_inducer_read_nothing_twice(skills: int, babyai: Samples) -> None:
    prompts = [babyai.acting(ActorSpec(babyai.library(skills)))]
    prompts += [babyai.inducing(3, interpreter=interpreter) for interpreter in ("on", "off")]
    for prompt in prompts:
        texts = [message["content"].partition("## New episodes")[0] for message in prompt.messages]
        everything = sentences("\n".join([*texts, *(tool.doc for tool in prompt.tools)]))
        assert [sentence for sentence in set(everything) if everything.count(sentence) > 1] == []


@pytest.mark.parametrize("options", [{}, {"interpreter": "off"}, {"interpreter": "off", "sleep": 2}])
@pytest.mark.parametrize("skills", [0, 2, 30])
def test_sections_are_one_blank_line_apart(skills: int, options: dict[str, object], babyai: Samples) -> None:
    for message in babyai.inducing(skills, **options).messages:
        text = re.sub(r"```python\n.*?\n```", "...", message["content"], flags=re.DOTALL)
        assert text == text.strip()
        assert not re.search(r"[ \t]\n|\n\n\n", text)


@pytest.mark.parametrize("wording", range(4))
def test_all_methods_read_one_prompt_until_a_library_has_skills(wording: int, babyai: Samples) -> None:
    prompts = set()
    for method in (ReAct(), OPO(), ACE(), ASI(), SpeedRunner(), Voyager()):
        spec = method.agent(method.initial(), babyai.task, babyai.env)
        prompts.add(spec.messages(babyai.env, babyai.opening, wording)[0].content)
    (plain,) = prompts
    with_skills = ActorSpec(babyai.library(1)).messages(babyai.env, babyai.opening, wording)[0].content
    assert ("skill" in plain, "skill" in with_skills) == (False, True)


def test_an_environments_text_is_not_taken_for_a_template() -> None:
    text = render(ACTOR, "user", reference="", instruction="{{ 1 + 1 }} <b>&amp;", observation="{% if x %}")
    assert text == "Your task: {{ 1 + 1 }} <b>&amp;\n\n{% if x %}"


GIVEN_AWAY = {
    "babyai": (
        *("order", "first", "then,", "after", "before", "sequence", "pars", "pick up", "go to", "put"),
        *("next to", "count", "128", "behind", "step", "lock", "door", "at a time"),
    ),
    "crafter": (
        *("lava", "ripe", "heal you", "recover", "food", "energy", "diagonal", "nearby", "at most", "walk"),
        *("sand", "zombie", "tree", "64"),
    ),
    "scienceworld": (
        *("anode", "terminal", "circuit", "wrong", "focus", "ambiguous", "cancel", "wire", "workshop"),
        *("door", "box", "announce", "heat", "time"),
    ),
}
"""What the paper's agents had to find out: environment -> what its description must not mention. Of Crafter
the names of the achievements are told (Appendix D.5)."""

HINTS = (
    *("order of", "which order", "parse", "pattern", "regular expression", "candidate", "the instruction in"),
    *("mission", "explor", "progress", "circuit", "ambigu", "categor", "canonical", "inventory"),
    *("whole solution", "general skill", "similar"),
)
"""What no prompt of an inducer may suggest, whatever the environment."""


def _primitives(name: str) -> list[str]:
    """Those whose names are no words that any prompt may need."""
    return [each.name for each in envs.make(name).primitives if "_" in each.name]


class TestNothingIsGivenAway:
    """What the paper reports as findings is for actor and inducer to find."""

    @pytest.mark.parametrize("name", GIVEN_AWAY)
    def test_a_description_as_in_the_paper_tells_no_rules(self, name: str) -> None:
        rules, _, rest = envs.make(name).description.lower().partition("achievements:\n")
        rules += rest.partition("\n\n")[2]
        assert [each for each in GIVEN_AWAY[name] if each in rules] == []

    def test_tools_are_documented_without_what_a_task_asks_for(self) -> None:
        docs = "\n".join(each.doc for name in GIVEN_AWAY for each in envs.make(name).primitives).lower()
        hints = ("anode", "terminal 1", "wire", "thermometer", "ripe", "mission", "first")
        hints += ("open door", "locked", "destroys", "ambiguous")
        assert [each for each in hints if each in docs] == []

    @pytest.mark.parametrize("interpreter", ["on", "off"])
    @pytest.mark.parametrize("goal", ["goal_oriented", "asi_style"])
    def test_an_inducer_reads_how_to_work_and_not_what_to_find(
        self, goal: str, interpreter: str, tmp_path: Path
    ) -> None:
        env = envs.make("tests.toy_env:Corridor")
        prompt = said(Samples(env, tmp_path).inducing(0, prompt=goal, interpreter=interpreter)).lower()
        assert [each for each in HINTS if each in prompt] == []

    def test_prompts_have_nothing_of_another_environment(self, tmp_path: Path) -> None:
        toy = Samples(envs.make("tests.toy_env:Racetrack"), tmp_path)
        empty = Policy(version=0)
        prompts = [toy.inducing(0), toy.asked(OPO(), empty), toy.asked(ASI(), empty), toy.programmer(0)]
        prompts += [toy.curriculum(), toy.critic()]
        text = "\n".join(map(said, prompts)).lower()
        names = {name for each in GIVEN_AWAY for name in (each, *_primitives(each))}
        assert [each for each in (*HINTS, *sorted(names)) if re.search(rf"\b{each}", text)] == []
