"""Seeds that claims need, against numbers of tables and invented variances."""

from __future__ import annotations

import numpy
import pytest

from speedrunner.results.power import MOST, estimate_need, seeds_needed, split_variance
from speedrunner.results.published import Claim
from tests.speedrunner.results.test_claims import runs_of
from tests.verdict_simulation import AT_THE_END, simulate


@pytest.mark.parametrize(
    ("margins", "deviation", "seeds"),
    [
        ([1.0], 1.0, 10),  # G*Power, t-test of one mean, two-sided at 5%, power 80%
        ([0.5], 1.0, 34),
        ([0.2], 1.0, 199),
        ([0.1], 1.0, MOST + 1),
        ([], 1.0, MOST + 1),
        ([0.3], 0.0, 2),
        ([1.0, 9.0], 1.0, 8),  # a tie: one-sided tests at 5%, of which one decides
        ([1.0, 1.0], 1.0, 11),
    ],
)
def test_seeds_are_those_of_tables(margins: list[float], deviation: float, seeds: int) -> None:
    assert seeds_needed(margins, deviation, 0.8) == seeds


def test_variance_is_split_into_seeds_and_episodes() -> None:
    random = numpy.random.default_rng(0)
    samples = {seed: [random.normal(0, 2, (400, 1)) + random.normal(0, 3)] for seed in range(300)}
    claim = Claim("c", a="x a", low=0.0)
    _, total, between, episode = split_variance(claim, samples)
    assert episode == pytest.approx(4, rel=0.05)
    assert between == pytest.approx(9, rel=0.2)
    assert total == pytest.approx(between + episode / 400)


def test_before_training_a_seed_varies_without_its_library() -> None:
    claim = Claim("c", measure="output", a="babyai react", high=100.0)
    runs = {("babyai", "react"): dict(enumerate(runs_of("react", "output", [[10.0], [20.0], [30.0]])))}
    need = estimate_need(claim, runs, 0.8)
    assert need is not None
    seeds, effect, seed, library, episode = need
    assert (effect, seed, library, episode) == (20.0, 0.0, pytest.approx(10.0), 0.0)
    assert seeds == 3  # 80 away from the end, 8 deviations


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "effect", "wordings"), AT_THE_END)
def test_of_1000_cases_at_the_end_of_the_range_at_most_five_percent_are_decided(
    claim: Claim, effect: float, wordings: int
) -> None:
    found = simulate(claim, effect, 3, 1000, wordings)
    assert found["supported"] + found["contradicted"] <= 50
    assert found["undecided"] >= 950
