"""Which runs belong together, what they are called, and their spread over seeds."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest
from msgspec import structs
from pandas import Series

from speedrunner.config.condition import Choice
from speedrunner.results.conditions import (
    BABYAI,
    CRAFTER,
    FAMILIES,
    FOURTH,
    THIRD,
    group_runs,
    places,
)
from speedrunner.results.means import Spread, average, spread_seeds
from tests.speedrunner.results.summaries import checkpoint, summary


def names(*runs: object) -> list[tuple[str, str, list[int]]]:
    groups, _ = group_runs(runs)  # type: ignore[arg-type]
    return [(*each.names[:2], [*each.runs]) for each in groups]


def test_deviation_is_the_sample_s() -> None:
    # The paper's 8.7 and 2.1 are depths of 7, 8 and 11.
    found = spread_seeds(Series({0: own, 10: nan, 20: other}) for own, other in ((7, 7), (8, nan), (11, nan)))
    assert found.keys() == {0, 20}
    assert (found[0].mean, found[0].sd) == (pytest.approx(26 / 3), pytest.approx((26 / 6) ** 0.5))
    assert found[20] == Spread(7, None, 1)
    assert average([Spread(1, 0.5, 2), Spread(3, 0.1, 4)]) == Spread(2, 0.3, 2)
    assert average([Spread(1, None, 1), Spread(3, 0.1, 4)]) == Spread(2, None, 1)


def test_runs_that_differ_by_their_seed_are_one_group() -> None:
    assert names(summary(seed=2), summary(seed=0), summary(method="asi", seed=1)) == [
        ("babyai", "asi", [1]),
        ("babyai", "react", [0, 2]),
    ]


def test_runs_with_other_settings_have_these_in_their_names() -> None:
    runs = summary(max_actions=200), summary(max_actions=20), summary(env="crafter", max_actions=7)
    assert names(*runs, summary(method="asi", max_actions=20, rollouts=20)) == [
        ("babyai", "asi (run.max_actions=20)", [0]),
        ("babyai", "react (run.max_actions=20)", [0]),
        ("babyai", "react (run.max_actions=200)", [0]),
        ("crafter", "react", [0]),
    ]
    assert names(summary(rollouts=200), summary(method="asi", rollouts=20, eval_every=10)) == [
        ("babyai", "asi", [0]),
        ("babyai", "react", [0]),
    ]


def test_a_key_that_other_runs_lack_has_its_default_there() -> None:
    usual = summary()
    role = structs.replace(usual.config.model, actor={"temperature": 0.1})
    runs = summary(seed=1), replace(usual, config=structs.replace(usual.config, model=role))
    assert names(*runs) == [
        ("babyai", "react (model.actor.temperature=0.1)", [0]),
        ("babyai", "react (model.actor.temperature=default)", [1]),
    ]


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("model", {"name": "folder/tiny-random.yaml"}),
        *(("model", {"prefix_caching": False}), ("model", {"context": 9})),
        *(("model", {role: {"thinking_tokens": 9}}) for role in ("actor", "inducer")),
        *(("library", {"visible_last": 9}), ("library", {"shown": "search"})),
    ],
)
def test_what_the_names_of_conditions_say_is_not_repeated(section: str, change: dict[str, object]) -> None:
    run = summary(seed=1)
    config = structs.replace(run.config, **{section: structs.replace(getattr(run.config, section), **change)})
    assert names(summary(), replace(run, config=config)) == [("babyai", "react", [0, 1])]


def test_a_wording_is_a_condition_of_its_own() -> None:
    found = names(summary(), summary(wording=2))
    assert found == [("babyai", "react", [0]), ("babyai", "react-wording2", [0])]


def test_the_schedule_of_an_evaluation_is_none_of_its_settings() -> None:
    evaluated = summary(method="react-from_x", rollouts=0, start_from="x")
    assert names(summary(), evaluated) == [("babyai", "react", [0]), ("babyai", "react-from_x", [0])]


def test_of_two_runs_of_one_setting_and_seed_the_farther_one_counts() -> None:
    short, long = summary(), summary("babyai", "react", 0, checkpoint(0, [{}]), dir="other")
    groups, notes = group_runs([short, long])
    assert [run.config.run.dir for run in groups[0].runs.values()] == ["other"]
    assert notes == [f"{short.path} is left out: it has the condition and seed of {long.path}"]


def test_columns_are_those_of_the_paper_and_other_environments_that_were_played() -> None:
    conditions, _ = group_runs(
        [summary("maze", "asi"), summary(FOURTH), summary("crafter", model="m"), summary("babyai")]
    )
    assert list(places(conditions).items()) == [
        ("Crafter", (CRAFTER,)),
        ("scienceworld-family4", (FOURTH,)),
        ("BabyAI", (BABYAI,)),
        ("maze", (Choice("maze"),)),
    ]
    both = [*conditions, *group_runs([summary(THIRD)])[0]]
    assert places(both)["ScienceWorld"] == FAMILIES
