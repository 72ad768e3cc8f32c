"""What caching saves, computed from measured blocks."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pandas
import pytest

from speedrunner.bench.caching import BlockCost, Treatment, compare_savings, list_blocks, refuse_repeats
from speedrunner.cli.bench_commands import caching_files
from speedrunner.config.schema import InvalidConfig
from speedrunner.store.run_data import load
from tests.speedrunner.results.small_runs import SmallRun


def cost(run: str, checkpoint: int, treatment: Treatment, seconds: float) -> BlockCost:
    return BlockCost(
        **{"run": run, "environment": "babyai", "method": "speedrunner"},
        **{"checkpoint": checkpoint, "in_flight": 8, "treatment": treatment, "episodes": 20},
        **{"requests": 40, "seconds": seconds, "joules": None, "first_token_ms": None},
        **{"cached_share": 0.5, "disturbed": ""},
    )


def run_of(name: str, *seconds: float) -> list[BlockCost]:
    """Warm and uncached seconds before, then after learning."""
    places = ((0, "warm"), (0, "none"), (40, "warm"), (40, "none"))
    return [cost(name, point, kind, own) for (point, kind), own in zip(places, seconds, strict=False)]  # type: ignore[arg-type]


def test_savings_before_and_after_are_paired_within_a_run() -> None:
    (row,) = compare_savings([*run_of("a/seed0", 6, 10, 8, 10), *run_of("b/seed0", 4, 10, 9, 10)])
    assert msgspec.to_builtins(row) == row  # as it is printed
    assert (row["runs"], row["rollouts"]) == (2, 40)
    assert (row["before"], row["after"], row["change"]) == pytest.approx((0.5, 0.15, -0.35))
    # Two changes, -0.2 and -0.5: their mean, and t of one degree of freedom times their standard error.
    assert (row["low"], row["high"]) == pytest.approx(
        (-0.35 - 12.7062 * 0.15, -0.35 + 12.7062 * 0.15), rel=1e-4
    )


def test_a_run_without_one_of_its_checkpoints_is_left_out() -> None:
    (row,) = compare_savings([*run_of("a/seed0", 6, 10, 8, 10), *run_of("b/seed0", 4, 10)])
    assert (row["runs"], row["low"]) == (1, None)
    assert list(compare_savings(run_of("b/seed0", 4, 10))) == []


def test_each_cost_and_cache_has_its_row_if_it_was_measured() -> None:
    costs = [
        msgspec.structs.replace(cost("a/seed0", point, kind, 10), joules=joules)
        for point in (0, 40)
        for kind, joules in (("warm", 2.0), ("within", 4.0 + point / 10), ("none", 10.0))
    ]
    found = {(row["cost"], row["cache"]): (row["before"], row["after"]) for row in compare_savings(costs)}
    assert found == {
        ("seconds", "warm"): (0, 0),
        ("seconds", "within"): (0, 0),
        ("joules", "warm"): pytest.approx((0.8, 0.8)),
        ("joules", "within"): pytest.approx((0.6, 0.2)),
    }


def test_blocks_are_the_first_and_the_last_evaluation_and_not_a_later_batch(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run", run={"eval_every": 4, "rollouts": 8})
    for policy in range(4):
        run.policy(policy, {})
    run.test(0, 0, [0.0, 0.5])
    for policy in range(4):  # the last two batches after 4 and 6 rollouts
        run.train(policy, [None], [None])
    run.test(4, 2, [0.5, 1.0])
    blocks = [*list_blocks(load(run.path), None, [8])]  # type: ignore[arg-type]
    assert [(block.checkpoint, len(block.episodes)) for block in blocks] == [(0, 2), (4, 2)]


def test_two_runs_of_one_condition_and_seed_are_refused(tmp_path: Path) -> None:
    def stored(name: str, seed: int) -> SmallRun:
        run = SmallRun(tmp_path / name, run={"seed": seed})
        run.policy(0, {})
        return run

    runs = [load(stored(name, seed).path) for name, seed in (("a", 0), ("b", 1), ("c", 0))]
    refuse_repeats(runs[:2])
    with pytest.raises(InvalidConfig, match=r"/a and .*/c have one environment, method and seed \(0\)"):
        refuse_repeats(runs)


def test_files_have_the_table_and_each_run_in_the_figure() -> None:
    two = [*run_of("a/seed0", 6, 10, 8, 10), *run_of("b/seed0", 4, 10, 9, 10)]
    react = [msgspec.structs.replace(cost, method="react") for cost in run_of("c/seed0", 5, 10, 5, 10)]
    many = [msgspec.structs.replace(cost, in_flight=32) for cost in two]
    lost = msgspec.structs.replace(two[0], seconds=1e9, disturbed="others used the engine")
    files = caching_files([*two, *react, *many, lost])
    savings = pandas.read_csv(io.BytesIO(files["tables/caching_savings.csv"]))
    assert savings[["method", "in_flight", "runs"]].values.tolist() == [
        ["react", 8, 1], ["speedrunner", 8, 2], ["speedrunner", 32, 2],
    ]  # fmt: skip
    assert savings["change"].tolist() == pytest.approx([0, -0.35, -0.35])
    drawing = files["figures/caching_savings.svg"].decode()
    shown = ("babyai, 8 in flight", "babyai, 32 in flight", "react", "speedrunner", "share of time saved")
    assert [text for text in shown if text not in drawing] == []
    assert {*caching_files([lost])} == {"tables/caching_savings.csv"}
