"""Seeds that claims need, against numbers of tables and invented variances."""

from __future__ import annotations

from math import nan
from pathlib import Path

import numpy
import pytest

from speedrunner.results import power
from speedrunner.results.claims import Claim
from speedrunner.results.inference import Samples
from speedrunner.results.power import MOST, estimate_need, seeds_needed, split_variance
from tests.scripted_runs import in_process
from tests.speedrunner.results.summaries import checkpoint, summary
from tests.synthetic_sweep import write_sweep
from tests.verdict_simulation import ABOVE_0, AT_THE_END, HARD_AND_EASY, World, simulate


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


def test_variance_is_split_into_seeds_and_episodes() -> None:
    random = numpy.random.default_rng(0)
    runs = {(0, seed): [random.normal(0, 2, (400, 1)) + random.normal(0, 3)] for seed in range(300)}
    samples = Samples(runs, share_tasks=False)
    claim = Claim("c", a="x a", low=0.0)
    spreads = split_variance(claim, samples)
    assert spreads.episode == pytest.approx(4, rel=0.05)
    assert spreads.between == pytest.approx(9, rel=0.2)
    assert spreads.seeds == pytest.approx(spreads.between + spreads.episode / 400)
    assert spreads.mean_of_tasks == 0


def test_variance_of_shared_tasks_is_split_from_that_of_episodes() -> None:
    random = numpy.random.default_rng(0)
    tasks = random.normal(0, 3, (300, 1))
    runs = {(0, seed): [tasks + random.normal(0, 2, (300, 1)) + random.normal(0, 0.5)] for seed in range(100)}
    spreads = split_variance(Claim("c", a="x a", low=0.0), Samples(runs, share_tasks=True))
    assert spreads.episode == pytest.approx(4, rel=0.05)
    assert spreads.mean_of_tasks == pytest.approx(9 / 300, rel=0.2)
    assert spreads.between == pytest.approx(0.25, rel=0.3)


@pytest.mark.parametrize("seeds", [2, 4, 5])
def test_a_pilot_of_few_seeds_gives_an_interval_alone(seeds: int) -> None:
    claim = Claim("c", measure="output", a="babyai opo", high=25.0)
    runs = {}
    for seed in range(seeds):
        values = [{"output": 20.0 + 4 * (seed % 2) + number % 3} for number in range(30)]
        runs[0, seed] = summary("babyai", "opo", seed, checkpoint(200, values))
    ((side,),) = claim.pairs
    need = estimate_need(claim, {side: runs}, 0.8)
    assert need is not None
    assert 2 <= need.low < need.high
    assert (need.seeds is None) == (seeds < 5)
    assert need.is_decidable


def test_many_seeds_decide_what_does_not_vary_over_tasks() -> None:
    claim = Claim("c", measure="output", a="babyai opo", high=25.0)
    runs = {
        (0, seed): summary("babyai", "opo", seed, checkpoint(200, [{"output": 20.0 + 4 * (seed % 2)}] * 30))
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
        (0, seed): summary(
            "babyai", "opo", seed, checkpoint(200, [{"output": each["output"] + seed} for each in values])
        )
        for seed in range(3)
    }
    ((side,),) = claim.pairs
    need = estimate_need(claim, {side: runs}, 0.8)
    assert need is not None
    assert need.show_seeds() == "never"


@pytest.mark.parametrize(
    ("notes", "points", "deviations"),
    [
        (True, [0, 200], (0.0, 10.0)),
        (False, [0, 200], (10.0, nan)),  # as ReAct, which plays twice with the same policy
        (True, [200], (10.0, nan)),  # an evaluation of what was learned before
    ],
)
def test_training_adds_deviation_only_to_what_learns_after_a_checkpoint(
    notes: bool, points: list[int], deviations: tuple[float, float]
) -> None:
    claim = Claim("c", measure="output", a="babyai opo", high=100.0)
    runs = {}
    for seed in range(3):
        values = {0: 40.0, 200: 10.0 * seed + 10}
        own = (checkpoint(point, [{"output": values[point]}]) for point in points)
        runs[0, seed] = summary("babyai", "opo", seed, *own)
        runs[0, seed].checkpoints["notes"] = notes
    ((side,),) = claim.pairs
    need = estimate_need(claim, {side: runs}, 0.8)
    assert need is not None
    assert need.effect == 20.0
    assert need.deviations == pytest.approx((nan, *deviations, 0.0), nan_ok=True)


def test_what_a_folder_cannot_plan_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sweep(tmp_path, seeds=2, methods=("react",))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.yaml").write_text("[")
    claims = {name: Claim(name, measure=name, a="babyai react", high=1e6) for name in ("score", "cost_usd")}
    claims["asi"] = Claim("asi", measure="score", a="babyai asi", low=0.0)
    monkeypatch.setattr(power, "list_claims", lambda: [[each] for each in claims.values()])
    lacking = "claims left out: 1 of which a side lacks two finished seeds or values"
    advice = f"all prices are zero: speedrunner sweep --power {tmp_path} --prices NAME"
    head, score, *_, bad, free, lacks, _ = power.power_lines(tmp_path, "zero")
    assert ("learned sd" in head, score.split(",")[0], lacks) == (True, "score", lacking)
    assert score.split()[5] == "-"  # ReAct learns nothing
    assert free == f"claims left out: 1 on USD, as {advice}"
    assert bad.startswith(f"{tmp_path}/bad/config.yaml")
    priced = power.power_lines(tmp_path, "gpt-5.4-mini")
    assert priced[2].startswith("cost_usd,")
    assert advice not in str(priced)


def test_power_of_nothing_is_an_error(tmp_path: Path) -> None:
    for words, reason in (
        ([], f"no claim can be planned by 0 runs in {tmp_path}"),
        (["--dry-run", "--json"], "--power reads finished runs and plays none: leave out --json --dry-run"),
    ):
        done = in_process("sweep", "--power", str(tmp_path), *words)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {reason}\n")


def test_seeds_that_share_their_tasks_do_not_multiply_them() -> None:
    wrong = {
        nested: 100 - simulate(ABOVE_0, HARD_AND_EASY, 0.0, 5, 100, nested=nested)["undecided"]
        for nested in (True, False)
    }
    assert wrong[False] <= 5 < 15 <= wrong[True]


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "world", "effect", "wordings"), AT_THE_END)
def test_of_1000_cases_at_the_end_of_the_range_at_most_five_percent_are_decided(
    claim: Claim, world: World, effect: float, wordings: int
) -> None:
    verdicts = simulate(claim, world, effect, 3, 1000, wordings=wordings)
    assert verdicts["supported"] + verdicts["contradicted"] <= 50
    assert verdicts["undecided"] >= 950
