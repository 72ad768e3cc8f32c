"""What the cache saves before and after learning, measured on a real engine with a learned run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundled_demo import Demo
from tests.engine.test_benches import measure

pytestmark = pytest.mark.slow


def test_an_episode_finds_in_the_cache_what_its_treatment_leaves_there(
    bundled_demo: Demo, tmp_path: Path
) -> None:
    measured = measure("caching", str(bundled_demo.run), "--in-flight", "8", "--out", str(tmp_path))
    blocks = measured["blocks"]
    assert len(blocks) == 2 * 3 * 2  # checkpoints, treatments, an order and its reverse
    shares = {(row["rollouts"], row["cache"]): row["cached_share"] for row in measured["costs"]}
    # A turn finds the turn before, and other episodes the system message and the tools.
    assert 0 == shares[0, "none"] < shares[0, "within"] < shares[0, "warm"]
    assert 0 == shares[40, "none"] <= shares[40, "within"] < shares[40, "warm"]
    for point in (0, 40):
        assert len({block["requests"] for block in blocks if block["checkpoint"] == point}) == 1
    savings = {(row["cost"], row["cache"]): row for row in measured["savings"]}
    assert {("seconds", "warm"), ("seconds", "within")} <= {*savings}
    saving = savings["seconds", "warm"]
    assert (saving["method"], saving["runs"], saving["low"]) == ("speedrunner", 1, None)
    assert (tmp_path / "figures" / "caching_savings.svg").exists()
