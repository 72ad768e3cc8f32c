"""The cache's benchmark: what it counts, and what it asks for."""

from __future__ import annotations

import pytest

from speedrunner.bench.cache_use import measure_cache
from speedrunner.bench.engine import playing_setup
from tests.scripted_runs import Runs, script

pytestmark = pytest.mark.process


async def test_an_engine_that_caches_all_it_can_gives_the_whole_maximum(corridor: Runs) -> None:
    setup = playing_setup(corridor(script()).overrides())
    said: list[str] = []
    found = await measure_cache(setup, [1, 2], episodes=2, turns=3, status=said.append)
    assert "level 1 of 2, 1 in flight: 4 turns of 2 of 2 episodes" in said
    assert said[-1] == "100.00% of the maximum; level 2 of 2, 2 in flight: 6 turns of 2 of 2 episodes"
    levels = found.tables[0].rows
    assert [(each.in_flight, each.episodes, each.turns) for each in levels] == [(1, 2, 6), (2, 2, 6)]
    for level in levels:
        assert level.of_maximum == 1.0
        assert 0 < level.cacheable <= level.cached < level.prompt
    (share,) = found.figures
    assert (share.value, share.at_least, found.met) == (1.0, 0.99, True)


async def test_an_engine_that_caches_nothing_misses_the_target(
    corridor: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = corridor(script())

    class Forgetful(set):  # type: ignore[type-arg]
        def __contains__(self, block: object) -> bool:
            return False

    monkeypatch.setattr(run.server, "_blocks", Forgetful())
    monkeypatch.setattr(Forgetful, "__ior__", lambda self, other: self)
    found = await measure_cache(playing_setup(run.overrides()), [2], episodes=2, turns=2, status=print)
    assert (found.figures[0].value, found.met) == (0.0, False)
