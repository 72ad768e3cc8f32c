from __future__ import annotations

import re
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from envs import EnvironmentFault, Opening, Task
from serving.errors import InvalidModelConfig
from speedrunner.agents.actor import Actor
from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig
from speedrunner.methods.method_registry import InvalidMethod
from speedrunner.methods.prompt_parts import shared_parts
from speedrunner.methods.react import ReAct
from speedrunner.runs.plan import InvalidPlan
from speedrunner.runs.planned_runs import PlannedRun
from speedrunner.runs.player import play_runs
from speedrunner.runs.setup import check_model, choose_model_config, set_up
from speedrunner.runs.shutdown import Shutdown
from speedrunner.store.records import Policy
from tests.golden_tables import Golden, refusals
from tests.prompt_samples import MODEL_CONFIG, Recorder

pytestmark = pytest.mark.process

CORRIDOR = "tests.toy_env:Corridor"
MAKER = "tests.speedrunner.runs.test_setup:Maker"


class Maker(ReAct):
    """Somebody's own method."""

    def __init__(self, *, size: int = 1) -> None:
        if size > 9:
            raise RuntimeError("too much\nby far")


def test_what_a_configuration_names_is_made_and_checked_without_starting_anything() -> None:
    setup = set_up(compose(["env=babyai", "method=react", "prices.cached=0.5"]))
    assert (setup.env.name, setup.method.trains, setup.model_config.name) == ("babyai", False, "tiny-random")
    assert setup.prices == msgspec.structs.replace(setup.model_config.prices, cached=0.5)
    assert setup.split.train[0] == Task("babyai", "pick_up_seq_go_to", 83810)


def test_what_environment_method_and_model_do_not_take_is_told_in_one_line(golden: Golden) -> None:
    lines = (
        *("env=no.such:Place", "env=tests.toy_env:Nothing", f"env={CORRIDOR} env.size=3"),
        *(f"env={CORRIDOR} env.pit=deep", "env.num_dist=3", "env.num_dists=abc", "env.num_dists=1000"),
        *(f"method={CORRIDOR}", "method.inducer_cals=3", "method.inducer_calls=abc"),
        *(f"method={MAKER} method.size=10", "model.actor.thinking_tokens=50000"),
        "model.actor.reasoning_effort=low",
    )

    def read(line: str) -> None:
        set_up(compose(line.split()))

    tries = [(line, partial(read, line)) for line in lines]
    kinds = (EnvironmentFault, InvalidMethod, InvalidModelConfig)
    text = refusals(tries, kinds, FOLDER=Path.cwd())
    golden("refused_options.txt", re.sub(r"line \d+", "line N", text))


@pytest.mark.parametrize(
    ("line", "limits"),
    [
        ("env=crafter", "2000 {} or 2000 actions."),
        ("env=crafter run.max_actions=60 model.actor.max_calls=10", "10 {} or 60 actions."),
        ("env=crafter env.description=full run.max_actions=60", "2000 {} or 60 actions."),
        ("env=crafter run.max_actions=3000 model.actor.max_calls=3000", "2000 {} or 2000 actions."),
        ("env=babyai", "30 {} or 128 actions."),
        ("env=scienceworld env.family=3", "100 {}."),
    ],
)
def test_agents_read_the_limits_that_apply_to_an_episode(line: str, limits: str) -> None:
    setup = set_up(compose(line.split()))
    model_config = msgspec.structs.replace(MODEL_CONFIG, roles=setup.model_config.roles)
    actor = Actor(setup.env, Recorder(model_config), setup.config)
    system, _ = setup.actor_spec(Policy(version=0)).messages(setup.env, Opening("", ""))
    assert f"at the latest after {limits.format('answers')}" in system.content
    assert "2000 actions" not in system.content.replace(limits.format("answers"), "")
    told = shared_parts(setup.env, actor.limits)["episodes"]
    assert f"at the latest after {limits.format('LLM calls')}" in told


@pytest.mark.parametrize("given", ["method=react", "method=speedrunner run.rollouts=0"])
async def test_nothing_is_created_for_a_run_without_episodes(tmp_path: Path, given: str) -> None:
    folder = tmp_path / "run"
    words = ["run.test_episodes=0", f"env={CORRIDOR}", f"run.dir={folder}", *given.split()]
    with pytest.raises(InvalidPlan, match=r"nothing to play: set run\.test_episodes"):
        await play_runs([PlannedRun(set_up(compose(words)))], Console(), Shutdown(print))
    assert not folder.exists()


def test_answers_of_an_inducer_need_room_only_in_a_method_that_learns() -> None:
    given = ["model=tiny", "model.context=700", "env=babyai"]
    assert set_up(compose([*given, "method=react"])).model_config.context == 700
    with pytest.raises(InvalidModelConfig, match=r"model\.inducer \(2208\): thinking"):
        set_up(compose([*given, "method=speedrunner"]))


def test_a_context_that_the_first_prompt_fills_is_refused() -> None:
    refused = pytest.raises(InvalidConfig, match="prompt has")
    for context, words, error in ((600, 0, refused), (1000, 0, nullcontext()), (9000, 9000, refused)):
        setup = set_up(compose(["method=opo", "model=tiny-random", f"model.context={context}"]))
        with error:
            check_model(setup, msgspec.structs.replace(setup.initial_policy(), notes="door " * words))


def test_budgets_and_sampling_of_a_role_can_be_set() -> None:
    config = compose(["model=tiny-random", "model.actor.thinking_tokens=32", "model.inducer.temperature=0.2"])
    model_config, own = choose_model_config(config), choose_model_config(compose(["model=tiny-random"]))
    assert (model_config.roles.actor.thinking_tokens, model_config.roles.inducer.temperature) == (32, 0.2)
    assert model_config.roles.actor.string_tokens == own.roles.actor.string_tokens
