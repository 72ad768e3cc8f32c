from __future__ import annotations

from envs import Task
from speedrunner.agents.actor import EpisodeLimits
from speedrunner.config.compose import compose
from speedrunner.runs.setup import set_up


def test_what_a_configuration_names_is_made_and_checked_without_starting_anything() -> None:
    setup = set_up(compose(["env=babyai", "method=react", "prices.cached=0.5", "run.wall_clock_s=9"]))
    assert (setup.env.name, setup.method.trains, setup.card.name) == ("babyai", False, "tiny")
    assert setup.prices.actor.cached == 0.5
    assert setup.prices.actor.uncached == setup.card.prices.uncached
    assert setup.episode_limits() == EpisodeLimits(9.0, None, 4000)
    assert setup.split.train[0] == Task("babyai", "pick_up_seq_go_to", 83810)
