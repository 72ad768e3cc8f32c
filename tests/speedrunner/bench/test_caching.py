"""What caching saves, computed from measured blocks."""

from __future__ import annotations

import msgspec
import pytest

from speedrunner.bench.caching import BlockCost, Treatment, compare_savings


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
    assert row["runs"] == 2
    assert (row["before"], row["after"], row["change"]) == pytest.approx((0.5, 0.15, -0.35))
    assert row["low"] < row["change"] < row["high"]  # type: ignore[operator]


def test_a_run_without_one_of_its_checkpoints_is_left_out() -> None:
    (row,) = compare_savings([*run_of("a/seed0", 6, 10, 8, 10), *run_of("b/seed0", 4, 10)])
    assert (row["runs"], row["low"]) == (1, None)
    assert list(compare_savings(run_of("b/seed0", 4, 10))) == []
