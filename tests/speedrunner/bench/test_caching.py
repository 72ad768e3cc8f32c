"""What caching saves, computed from measured blocks."""

from __future__ import annotations

import io

import msgspec
import pandas
import pytest

from speedrunner.bench.caching import BlockCost, Treatment, compare_savings
from speedrunner.bench.caching_files import caching_files


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
