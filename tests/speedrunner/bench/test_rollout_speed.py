"""A rollout that fits into a given time: how many requests it allows, and what its row holds."""

from __future__ import annotations

import pytest

from speedrunner.bench.engine import open_engine, playing_setup
from speedrunner.bench.measurement import Measurement
from speedrunner.bench.rollout_speed import LEAST_CALLS, measure_timed_rollout
from tests.scripted_engine import call
from tests.scripted_runs import Runs, script

LOOK = script(lambda request: call("look"))
"""An actor that never ends its episode."""


async def measured(corridor: Runs, *, aim_s: float, calls: int | None, replayed: bool) -> Measurement:
    setup = playing_setup(corridor(LOOK).overrides())
    async with open_engine(setup.model_config, setup.config, print) as deployment:
        return await measure_timed_rollout(
            deployment, setup, 2, print, server="x", aim_s=aim_s, calls=calls, replayed=replayed
        )


@pytest.mark.parametrize(("aim_s", "calls"), [(0.0, LEAST_CALLS), (1e9, 20)])
async def test_episodes_have_as_many_requests_as_fit_and_no_more_than_the_environment_allows(
    corridor: Runs, aim_s: float, calls: int
) -> None:
    found = await measured(corridor, aim_s=aim_s, calls=None, replayed=True)
    (table,) = found.tables
    (row,) = table.rows
    assert found.facts == {"model": "tiny-random", "calls": calls, "in_flight": 2}
    assert (row.calls, row.turns, row.in_flight) == (calls, 2 * calls, 2)
    assert row.output_per_s == pytest.approx(row.output / row.seconds)
    assert row.ratio == pytest.approx(row.output_per_s / row.replay_per_s)
    assert 0 < row.hit_rate < 1
    (ratio,) = found.figures
    assert ratio.at_least == (None if calls == LEAST_CALLS else 0.90)


async def test_without_a_replay_and_without_a_server_of_ours_their_figures_are_left_out(
    corridor: Runs,
) -> None:
    found = await measured(corridor, aim_s=1.0, calls=3, replayed=False)
    (row,) = found.tables[0].rows
    assert (row.calls, row.turns) == (3, 6)
    assert row.client_ms > 0
    assert (row.replay_per_s, row.ratio, row.server_ms, row.server_mb) == (None, None, None, None)
    assert (row.gpu_mib, row.watts, row.joules) == (None, None, None)
    assert found.figures == []
