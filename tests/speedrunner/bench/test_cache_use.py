"""The cache's benchmark: what it counts, which smaller cache it chooses, and what it asks for."""

from __future__ import annotations

import msgspec
import pytest

from serving.engine.cache_config import CacheConfig
from serving.model_configs import load_model_config
from speedrunner.bench import cache_use as cache
from speedrunner.bench.cache_use import measure_cache
from speedrunner.bench.engine import playing_setup, with_flags
from speedrunner.bench.measurement import as_text
from tests import record_samples
from tests.golden_tables import Golden
from tests.scripted_runs import Runs, script

pytestmark = pytest.mark.process


async def test_an_engine_that_caches_all_it_can_gives_the_whole_maximum(corridor: Runs) -> None:
    setup = playing_setup(corridor(script()).overrides())
    said: list[str] = []
    found = await measure_cache(setup, [1, 2], episodes=2, turns=3, status=said.append)
    assert "level 1 of 2, 1 in flight with admission: 4 turns of 2 of 2 episodes" in said
    assert said[-1] == (
        "the last level, repeated: 100.00% of the maximum; level 4 of 4, 2 in flight with admission:"
        " 6 turns of 2 of 2 episodes"
    )
    levels, whole = found.tables  # the server is not ours: its cache stays as it is
    assert [(each.in_flight, each.admission, each.episodes) for each in whole.rows] == [
        (2, True, 2),
        (2, False, 2),
        (2, False, 2),
        (2, True, 2),
    ]
    assert [(each.in_flight, each.admission) for each in levels.rows] == [(1, True), (2, True)]
    for level in [*levels.rows, *whole.rows]:
        assert (level.episodes, level.turns) == (2, 6)  # three turns each, as was asked for
        assert level.of_maximum == 1.0
        assert 0 < level.cacheable <= level.cached < level.prompt
        assert level.own_blocks > 0
    share, held, free, speed, cpu = found.figures
    assert held.value == free.value == whole.rows[0].hit_rate
    assert speed.value is not None
    assert cpu.value is None  # nor is its CPU time
    assert (share.value, share.at_least, found.met) == (1.0, 0.99, True)
    assert "admission in a small cache is not measured" in found.notes[0]


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


LEVEL = msgspec.structs.replace(
    record_samples.ROW,
    cache_blocks=16384,
    turns=480,
    prompt=1_000_000,
    cached=970_000,
    cacheable=975_000,
    of_maximum=0.994,
    hit_rate=0.97,
    output=30_000,
    output_per_s=600.0,
    cpu_ms=1.5,
    shared_blocks=47,
    own_blocks=50.5,
)
DENSE = CacheConfig(32, 16384, True, 32)


@pytest.mark.parametrize(("in_flight", "blocks"), [(16, 47 + 8 * 50.5 + 1), (1, 47 + 51 + 1)])
def test_the_smaller_cache_holds_what_is_shared_and_half_of_the_conversations(
    in_flight: int, blocks: float
) -> None:
    model_config = cache.smaller(
        load_model_config("tiny-random"), DENSE, {**msgspec.to_builtins(LEVEL), "in_flight": in_flight}
    )
    assert model_config.server.flags["num-gpu-blocks-override"] == blocks
    # The engine refuses a context that its cache cannot hold, and a hybrid one more sequences than blocks.
    assert model_config.context == min(load_model_config("tiny-random").context, (blocks - 1) * 32)
    assert model_config.server.flags["max-num-seqs"] == 32
    wide = with_flags(load_model_config("tiny-random"), max_num_seqs=256)
    level = {**msgspec.to_builtins(LEVEL), "in_flight": in_flight}
    sequences = cache.smaller(wide, DENSE, level).server.flags["max-num-seqs"]
    assert sequences == min(256, blocks - 1)


def test_people_see_a_line_for_each_level_and_what_admission_does(golden: Golden) -> None:
    small = [
        msgspec.structs.replace(LEVEL, cache_blocks=452, hit_rate=0.95, queued=8),
        msgspec.structs.replace(LEVEL, admission=False, hit_rate=0.6, output_per_s=200.0),
    ]
    fast = msgspec.structs.replace(LEVEL, output_per_s=660.0)
    free = msgspec.structs.replace(LEVEL, admission=False)
    text = as_text(
        cache._measurement(load_model_config("tiny-random"), DENSE, [LEVEL], [fast, free, free, LEVEL], small)
    )
    golden("cache_use.txt", text + "\n")
