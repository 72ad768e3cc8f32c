from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import msgspec
import pytest

from envs import EnvironmentFault, Task
from speedrunner.config.compose import compose
from speedrunner.methods.method_registry import InvalidMethodOption, UnknownMethod
from speedrunner.methods.react import ReAct
from speedrunner.runs.setup import set_up
from tests.golden_tables import Golden, refusals

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
    assert setup.prices == {"tiny-random": msgspec.structs.replace(setup.model_config.prices, cached=0.5)}
    assert setup.split.train[0] == Task("babyai", "pick_up_seq_go_to", 83810)


def test_what_environment_and_method_do_not_take_is_told_in_one_line(golden: Golden) -> None:
    lines = (
        *("env=no.such:Place", "env=tests.toy_env:Nothing", f"env={CORRIDOR} env.size=3"),
        *(f"env={CORRIDOR} env.pit=deep", "env.num_dist=3", "env.num_dists=abc", "env.num_dists=1000"),
        *(f"method={CORRIDOR}", "method.inducer_cals=3", "method.inducer_calls=abc"),
        f"method={MAKER} method.size=10",
    )

    def read(line: str) -> None:
        set_up(compose(line.split()))

    tries = [(line, partial(read, line)) for line in lines]
    text = refusals(tries, (EnvironmentFault, InvalidMethodOption, UnknownMethod), FOLDER=Path.cwd())
    golden("refused_options.txt", re.sub(r"line \d+", "line N", text))


@pytest.mark.parametrize(("most", "actions"), [(None, 2000), (200, 200), (3000, 2000)])
def test_an_episode_may_be_given_fewer_actions_than_its_environment_allows(
    most: int | None, actions: int
) -> None:
    given = [] if most is None else [f"run.max_actions={most}"]
    assert set_up(compose(["env=crafter", *given])).env.limits.actions == actions
