"""The rollout's benchmark: what is replayed, what is left behind, and when it fails."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from serving.deployment import Deployment, ServiceOptions
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.bench.bare_replay import BareClient, TokenStream
from speedrunner.bench.engine import open_engine, playing_setup
from speedrunner.bench.measurement import Measurement
from speedrunner.bench.rollout_speed import (
    LEAST_CALLS,
    LEAST_JUDGED,
    describe_rollouts,
    measure_rollout,
    measure_timed_rollout,
)
from speedrunner.bench.rollouts import bench_run, open_player
from tests.record_samples import ROW
from tests.scripted_engine import ScriptedEngine, call, say
from tests.scripted_runs import Runs, script


async def test_the_replay_sends_what_the_rollout_sent_with_its_own_answers(corridor: Runs) -> None:
    scripted = corridor(script())
    setup = playing_setup(scripted.overrides())
    with bench_run(setup) as run:
        async with (
            open_engine(setup.model_config, setup.config, print) as deployment,
            open_player(deployment, run, 2) as player,
        ):
            pair = await player.play(2, print, replayed=True)
        rows = [row for of_episode in run.rows.values() for row in of_episode]
    requests = [each for each in scripted.server.requests if each.turn or each.tools]
    ours = [each for each in requests if "cache_salt" not in each.body]
    replayed = [each for each in requests if "cache_salt" in each.body]
    # The script answers a prompt always in the same way, so both must be equal in all but their order.
    assert len(ours) == len(replayed) == sum(row.labels["role"] == "actor" for row in rows) > 4
    assert sorted(each.prompt for each in ours) == sorted(each.prompt for each in replayed)
    for mine, bare in zip(_by_prompt(ours), _by_prompt(replayed), strict=True):
        bare = {key: value for key, value in bare.items() if key != "cache_salt"}
        assert mine == bare
    assert len({each.body["cache_salt"] for each in replayed}) == 1
    assert pair.ratio == pytest.approx(pair.output_per_s / pair.replay_per_s)


def _by_prompt(requests: list[Any]) -> list[dict[str, Any]]:
    return [each.body for each in sorted(requests, key=lambda each: each.prompt)]


async def test_a_rollout_and_its_replay_leave_no_task_thread_or_process_behind(corridor: Runs) -> None:
    setup = playing_setup(corridor(script()).overrides())
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    processes = set(psutil.Process().children(recursive=True))
    found = await measure_rollout(setup, 2, 2, print)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert asyncio.all_tasks() == tasks
    assert {each for each in threading.enumerate() if each.is_alive()} <= threads
    assert set(psutil.Process().children(recursive=True)) <= processes
    assert len(found.tables[0].rows) == 2
    assert found.facts["in_flight"] == 2


@pytest.mark.parametrize(("aim_s", "calls"), [(0.0, LEAST_CALLS), (1e9, 20)])
async def test_episodes_have_as_many_requests_as_fit_and_no_more_than_the_environment_allows(
    corridor: Runs, aim_s: float, calls: int
) -> None:
    never_ends = script(lambda request: call("look"))
    setup = playing_setup(corridor(never_ends).overrides())
    async with open_engine(setup.model_config, setup.config, print) as deployment:
        found = await measure_timed_rollout(deployment, setup, 2, aim_s, print)
    (row,) = found.tables[0].rows
    assert found.facts == {"model": "tiny-random", "calls": calls, "in_flight": 2}
    assert (row.calls, row.turns, row.in_flight) == (calls, 2 * calls, 2)
    assert row.output_per_s == pytest.approx(row.output / row.seconds)
    assert 0 < row.hit_rate < 1
    assert row.client_ms > 0
    assert found.figures[0].at_least == (None if calls == LEAST_CALLS else 0.90)


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
    (figure,) = found.figures
    assert figure.name == f"{which} over bare replay, 16 in flight"
    assert (figure.value, figure.at_least) == (value, target)


async def test_each_request_waits_for_the_answer_before_it(
    tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> None:
    episodes = [
        TokenStream(
            prompt=[number] * 40,
            replies=[[7, number], [7, number], []],
            most_tokens=30,
            options={"temperature": 1.0},
            replica=None,
        )
        for number in (3, 4, 5)
    ]
    with ScriptedEngine(tiny_tokenizer, lambda request: say("")) as engine:
        deployment = Deployment(tiny_model_config, ServiceOptions(), engine.endpoint)
        async with engine.endpoint.client(30.0) as http:
            client = BareClient(deployment, http)
            await client.warm(episodes, [1, 2, 3])
            assert await client.play(episodes) == 9  # each answer is the end of its turn alone
        sent: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for request in engine.requests:
            sent[request.prompt[0]].append(request.prompt)
    end = tiny_tokenizer.control_id("<|im_end|>")
    for number in (3, 4, 5):
        first = (number,) * 40
        assert sent[number] == [first, (*first, end, 7, number), (*first, *(end, 7, number) * 2)]
