"""The rollout's benchmark: what is replayed, what is left behind, and when it fails."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections import defaultdict

import psutil
import pytest
from msgspec.structs import replace

from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.bench.engine import open_engine, playing_setup
from speedrunner.bench.measurement import Measurement
from speedrunner.bench.rollouts import (
    LEAST_JUDGED,
    WARM_UP_CALLS,
    Rollout,
    describe_rollouts,
    measure_rollouts,
)
from speedrunner.plain.console import Status
from tests.instant_engine import open_engine as open_instant_engine
from tests.probe_engines import Forgetful
from tests.scripted_engine import Request, ScriptedEngine, call
from tests.scripted_runs import Runs, script

ROW = Rollout(
    in_flight=16,
    calls=8,
    turns=128,
    prompt=400_000,
    output=40_000,
    seconds=50.0,
    output_per_s=800.0,
    replay_per_s=832.0,
    ratio=0.9615,
    mean_in_flight=15.2,
    of_maximum=0.998,
    hit_rate=0.931,
    queued=0,
    client_ms=3.14,
)


async def measured(
    overrides: list[str], levels: list[int], pairs: int, most_calls: int | None = None, say: Status = print
) -> Measurement:
    """Measure with a client of its own, which knows nothing of earlier ones."""
    setup = playing_setup(overrides)
    async with open_engine(setup.model_config, setup.config, print) as deployment:
        return await measure_rollouts(deployment, setup, say, levels, pairs, most_calls)


async def test_the_replay_sends_what_the_rollout_sent_with_its_own_answers(corridor: Runs) -> None:
    run = corridor(script())
    await measured(run.overrides(), [2], 1)
    warm_up, ours, replayed = by_salt(run.server)
    # A new server compiles what the first requests need; no figure contains them.
    assert len(warm_up) == 2 * WARM_UP_CALLS
    # The script answers a prompt always in the same way, so both must be equal in all but their order.
    assert len(ours) == len(replayed) > 4
    mine, bare = (sorted(each, key=lambda request: request.prompt) for each in (ours, replayed))
    for one, other in zip(mine, bare, strict=True):
        assert {**one.body, "cache_salt": ""} == {**other.body, "cache_salt": ""}


def by_salt(server: ScriptedEngine) -> list[list[Request]]:
    """The requests for answers with each salt, in the order in which the first ones came."""
    found: dict[str, list[Request]] = defaultdict(list)
    for request in server.requests:
        if request.tools:
            found[request.body["cache_salt"]].append(request)
    return list(found.values())


async def test_an_engine_that_caches_all_it_can_gives_the_maximum_however_often_it_has_played_the_tasks(
    corridor: Runs,
) -> None:
    run = corridor(script())
    for _ in range(2):
        said: list[str] = []
        found = await measured(run.overrides(), [1, 2], 1, say=said.append)
        assert "warm-up with 1 in flight: 2 turns of 1 of 1 episodes" in said
        assert any(
            re.fullmatch(r"\d\.\d{3} of the replay; pair 1 of 1 with 2 in flight: .*", line) for line in said
        )
        one, two = found.tables[0].rows
        assert (one.in_flight, two.in_flight) == (1, 2)
        # Two first prompts at once could each get more from the other; the engine computes one of them first.
        assert 0.99 <= two.of_maximum <= one.of_maximum == 1.0
        for row in (one, two):
            assert 0 < row.hit_rate < 1
            assert row.ratio == pytest.approx(row.output_per_s / row.replay_per_s)
        *ratios, share = found.figures
        assert [each.name[-11:] for each in ratios] == ["1 in flight", "2 in flight"]
        assert (share.value, share.at_least, share.met) == (two.of_maximum, 0.99, True)


async def test_an_engine_that_caches_nothing_misses_the_target(
    corridor: Runs, tiny_tokenizer: ChatTokenizer
) -> None:
    with Forgetful(tiny_tokenizer, script()) as server:
        overrides = corridor(script()).overrides(f"serving.url={server.endpoint}")
        share = (await measured(overrides, [2], 1)).figures[-1]
    assert (share.value, share.met) == (0.0, False)


async def test_a_rollout_and_its_replay_leave_no_task_thread_or_process_behind(corridor: Runs) -> None:
    overrides = corridor(script()).overrides()
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    processes = set(psutil.Process().children(recursive=True))
    found = await measured(overrides, [2], 2)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert asyncio.all_tasks() == tasks
    assert {each for each in threading.enumerate() if each.is_alive()} <= threads
    assert set(psutil.Process().children(recursive=True)) <= processes
    assert len(found.tables[0].rows) == 2


@pytest.mark.parametrize(("most_calls", "calls"), [(LEAST_JUDGED, LEAST_JUDGED), (100, 20), (None, 20)])
async def test_episodes_have_as_many_requests_as_the_environment_allows_or_fewer(
    corridor: Runs, most_calls: int | None, calls: int
) -> None:
    run = corridor(script(lambda request: call("look")))
    found = await measured(run.overrides(), [2], 1, most_calls)
    (row,) = found.tables[0].rows
    assert (row.calls, row.turns, row.in_flight) == (calls, 2 * calls, 2)
    assert row.output_per_s == pytest.approx(row.output / row.seconds)
    assert 0 < row.hit_rate < 1
    assert row.client_ms > 0
    assert found.figures[0].at_least == 0.90


async def test_requests_are_in_flight_from_when_they_are_sent_until_they_are_answered(
    corridor: Runs, tiny_tokenizer: ChatTokenizer
) -> None:
    seconds, text = 0.2, call("look").written
    async with open_instant_engine(tiny_tokenizer, text, seconds) as endpoint:
        overrides = corridor(script()).overrides(f"serving.url={endpoint}")
        (row,) = (await measured(overrides, [3], 1, LEAST_JUDGED)).tables[0].rows
    assert row.turns == 3 * LEAST_JUDGED
    assert row.turns * seconds / row.seconds < row.mean_in_flight < 3


def described(model_config: str, *ratios: float, calls: int = LEAST_JUDGED) -> Measurement:
    rows = [replace(ROW, ratio=ratio, calls=calls) for ratio in ratios]
    return describe_rollouts(load_model_config(model_config), rows)


@pytest.mark.parametrize(
    ("found", "which", "value", "target"),
    [
        (described("tiny-random", 0.92), "rollout", 0.92, 0.90),
        (described("qwen3.5-27b", 0.92), "rollout", 0.92, 0.95),
        (described("tiny-random", 0.8, 0.95, 0.85), "median of 3 rollouts", 0.85, 0.90),
        (described("tiny-random", 0.92, calls=LEAST_JUDGED - 1), "rollout", 0.92, None),
    ],
)
def test_the_median_ratio_has_a_target_if_episodes_are_long_enough(
    found: Measurement, which: str, value: float, target: float | None
) -> None:
    figure, _ = found.figures
    assert figure.name == f"{which} over bare replay, 16 in flight"
    assert (figure.value, figure.at_least) == (value, target)


async def test_a_rollout_and_its_replay_wait_for_room_in_the_cache_alike(
    corridor: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = corridor(script())
    text = run.server.metrics.replace('num_gpu_blocks="1000"', 'num_gpu_blocks="2"')
    monkeypatch.setattr(ScriptedEngine, "metrics", text)
    (row,) = (await measured(run.overrides(), [2], 1)).tables[0].rows
    assert row.queued > 0
    _, ours, replayed = by_salt(run.server)
    for requests in (ours, replayed):  # with room for one, each conversation ends before the next begins
        assert len(list(itertools.groupby(requests, lambda each: each.task))) == 2
        assert len(requests) > 4
