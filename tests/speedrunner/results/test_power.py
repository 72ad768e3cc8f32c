"""Seeds that claims need, against numbers of tables and invented variances."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from speedrunner.results import power
from speedrunner.results.claims import Claim
from speedrunner.results.power import MOST, estimate_need, seeds_needed
from tests.scripted_runs import complaint, in_process
from tests.speedrunner.results.summaries import checkpoint, summary
from tests.synthetic_sweep import write_sweep
from tests.verdict_simulation import ABOVE_0, AT_THE_END, HARD_AND_EASY, WORLDS, simulate


@pytest.mark.parametrize(
    ("margins", "deviation", "seeds"),
    [
        ([1.0], 1.0, 10),  # G*Power, t-test of one mean, two-sided at 5%, power 80%
        ([0.5], 1.0, 34),
        ([0.2], 1.0, 199),
        ([0.1], 1.0, MOST + 1),
        ([-1.0], 1.0, MOST + 1),
        ([0.3], 0.0, MOST + 1),  # equal values have no interval
        ([3.0], 0.1, 2),
        ([1.0, 9.0], 1.0, 8),  # a tie: one-sided tests at 5%, of which one decides
        ([1.0, 1.0], 1.0, 11),
    ],
)
def test_seeds_are_those_of_tables(margins: list[float], deviation: float, seeds: int) -> None:
    shaped = numpy.array(margins)[:, None], numpy.array([deviation])
    assert seeds_needed(*shaped, 0.8).tolist() == [seeds]


def test_more_seeds_do_not_reduce_the_variance_of_tasks() -> None:
    shaped = numpy.array([[1.0]]), numpy.array([1.0])
    few, many = (int(seeds_needed(*shaped, 0.8, of_tasks**2, 30.0)[0]) for of_tasks in (0.1, 0.3))
    assert 10 < few < many < MOST
    assert seeds_needed(*shaped, 0.8, 0.5**2, 30.0)[0] > MOST


@pytest.mark.parametrize("seeds", [2, 4, 5])
def test_a_pilot_of_few_seeds_gives_an_interval_alone(seeds: int) -> None:
    claim = Claim("c", measure="output", a="babyai opo", high=25.0)
    runs = {}
    for seed in range(seeds):
        values = [{"output": 20.0 + 4 * (seed % 2) + number % 3} for number in range(30)]
        runs[seed] = summary("babyai", "opo", seed, checkpoint(200, values))
    ((side,),) = claim.pairs
    need = estimate_need(claim, {side: runs}, 0.8)
    assert need is not None
    assert 2 <= need.low < need.high
    assert (need.seeds is None) == (seeds < 5)
    assert need.is_decidable


def test_many_seeds_decide_what_does_not_vary_over_tasks() -> None:
    claim = Claim("c", measure="output", a="babyai opo", high=25.0)
    runs = {
        seed: summary("babyai", "opo", seed, checkpoint(200, [{"output": 20.0 + 4 * (seed % 2)}] * 30))
        for seed in range(5)
    }
    ((side,),) = claim.pairs
    need = estimate_need(claim, {side: runs}, 0.8)
    assert need is not None
    assert need.is_decidable


def test_no_number_of_seeds_decides_what_the_tasks_leave_open() -> None:
    claim = Claim("c", measure="output", a="babyai opo", low=19.0, high=21.0)
    values = [{"output": 20.0 + 30 * (number % 3 - 1)} for number in range(30)]
    runs = {
        seed: summary(
            "babyai", "opo", seed, checkpoint(200, [{"output": each["output"] + seed} for each in values])
        )
        for seed in range(3)
    }
    ((side,),) = claim.pairs
    need = estimate_need(claim, {side: runs}, 0.8)
    assert need is not None
    assert need.show_seeds() == "never"


def test_what_a_folder_cannot_plan_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sweep(tmp_path, seeds=2, methods=("react",))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.yaml").write_text("[")
    claims = {name: Claim(name, measure=name, a="babyai react", high=1e6) for name in ("score", "cost_usd")}
    claims["asi"] = Claim("asi", measure="score", a="babyai asi", low=0.0)
    monkeypatch.setattr(power, "list_claims", lambda: [[each] for each in claims.values()])
    lacking = "claims left out: {} of which a side lacks two finished seeds or values, or has prices of zero"
    head, score, *_, bad, lacks, _ = power.power_lines(tmp_path, "zero")
    assert ("seed sd" in head, score.split(",")[0]) == (True, "score")
    assert lacks.startswith(lacking.format(2))
    assert bad.startswith(f"{tmp_path}/bad/config.yaml")
    priced = power.power_lines(tmp_path, "gpt-5.4-mini")
    assert priced[2].startswith("cost_usd,")
    assert lacking.format(1) in str(priced)


def test_power_of_nothing_is_an_error(tmp_path: Path) -> None:
    line = complaint(in_process("sweep", "--power", str(tmp_path)))
    assert line == f"no claim can be planned by 0 runs in {tmp_path}"


def test_seeds_that_share_their_tasks_do_not_multiply_them() -> None:
    wrong = {
        nested: 100 - simulate(ABOVE_0, HARD_AND_EASY, 0.0, 5, cases=100, nested=nested)["undecided"]
        for nested in (True, False)
    }
    assert wrong[False] <= 5 < 10 <= wrong[True]


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "world", "effect"), AT_THE_END)
def test_of_1000_cases_at_the_end_of_the_range_at_most_five_percent_are_decided(
    claim: Claim, world: str, effect: float
) -> None:
    assert simulate(claim, WORLDS[world], effect, 3)["undecided"] >= 950
