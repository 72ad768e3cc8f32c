"""The rollout's benchmark: what is replayed, what the client alone is measured with, and when it fails."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections import defaultdict
from typing import Any

import pytest
from msgspec.structs import replace

from serving.cards import load_card
from serving.deployment import Deployment, ServiceOptions
from serving.errors import RequestFailed
from serving.model_card import ModelCard
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.bench import rollout_speed
from speedrunner.bench.engine import opened, playing_setup
from speedrunner.bench.episodes import bench_run
from speedrunner.bench.measurement import Figure, as_text
from speedrunner.bench.resources import Leftovers
from speedrunner.bench.rollout_speed import measure_client
from speedrunner.bench.rollouts import BareClient, TokenStream, open_player
from tests.record_samples import ROW
from tests.scripted_engine import ScriptedEngine, call, refuse, say
from tests.scripted_runs import Runs, script


def silent(line: str) -> None:
    pass


async def test_the_replay_sends_what_the_rollout_sent_with_its_own_answers(corridor: Runs) -> None:
    scripted = corridor(script())
    setup = playing_setup(scripted.overrides())
    with bench_run(setup) as run:
        async with (
            opened(setup.card, setup.config, silent) as deployment,
            open_player(deployment, run, 2) as player,
        ):
            pair = await player.play(2, silent, replayed=True)
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
    assert sum(len(each.answers) for each in player.streams) == len(ours)
    assert pair.ratio == pytest.approx(pair.output_per_s / pair.replay_per_s)
    assert pair.cpu_ms is pair.replay_cpu_ms is None  # the engine is not ours


def _by_prompt(requests: list[Any]) -> list[dict[str, Any]]:
    return [each.body for each in sorted(requests, key=lambda each: each.prompt)]


@pytest.mark.parametrize(("card", "target"), [("tiny-random", 0.90), ("qwen3.5-27b", 0.95)])
def test_more_is_asked_for_where_the_engine_has_a_gpu_of_its_own(card: str, target: float) -> None:
    assert rollout_speed.ratio_target(load_card(card)) == target


def measured(ratio: float, *left: str) -> Any:
    pair = replace(ROW, server="1", output_per_s=1000 * ratio, replay_per_s=1000.0, ratio=ratio, cpu_ms=None)
    client = [Figure("client alone, turns per CPU s", 600.0, at_least=250.0)]
    return rollout_speed._measurement(load_card("tiny-random"), 32, [pair], client, list(left))


def test_people_see_the_pairs_and_the_targets() -> None:
    lines = [" ".join(line.split()) for line in as_text(measured(0.92)).splitlines()]
    assert "1 920 1000 0.920 not measured not measured" in lines
    assert "median ratio to the bare replay 0.920 at least 0.900: met" in lines
    assert "client alone, turns per CPU s 600 at least 250: met" in lines
    assert "tasks, threads and processes left behind 0 at most 0: met" in lines


@pytest.mark.parametrize(
    ("ratio", "left", "met"), [(0.92, [], True), (0.89, [], False), (0.92, ["x"], False)]
)
def test_each_target_counts(ratio: float, left: list[str], met: bool) -> None:
    found = measured(ratio, *left)
    assert found.met is met
    assert found.notes == [f"LEFT BEHIND: {each}" for each in left]


@pytest.mark.process
async def test_what_is_left_behind_is_named() -> None:
    leftovers, end = Leftovers(), threading.Event()
    assert await leftovers.found() == []
    task = asyncio.create_task(asyncio.Event().wait(), name="watchdog")
    thread = threading.Thread(target=end.wait, name="pool", daemon=True)
    thread.start()
    process = subprocess.Popen(["sleep", "60"])  # noqa: ASYNC220
    assert await leftovers.found() == ["task watchdog", "thread pool", "process sleep 60"]
    end.set()
    task.cancel()
    process.kill()
    process.wait()


async def test_each_request_waits_for_the_answer_before_it(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    episodes = [
        TokenStream(
            prompt=[number] * 40,
            answers=[],
            replies=[[7, number], [7, number], []],
            most_tokens=30,
            options={"temperature": 1.0},
            replica=None,
        )
        for number in (3, 4, 5)
    ]
    with ScriptedEngine(tiny_tokenizer, lambda request: say("")) as engine:
        deployment = Deployment(tiny_card, ServiceOptions(), engine.endpoint)
        async with engine.endpoint.client(30.0) as http:
            client = BareClient(deployment, http, "salt")
            await client.warm(episodes, [1, 2, 3])
            assert await client.play(episodes) == 9  # each answer is the end of its turn alone
        sent: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for request in engine.requests:
            sent[request.prompt[0]].append(request.prompt)
    end = tiny_tokenizer.control_id("<|im_end|>")
    for number in (3, 4, 5):
        first = (number,) * 40
        assert sent[number] == [first, (*first, end, 7, number), (*first, *(end, 7, number) * 2)]


async def test_a_refused_request_is_told(tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer) -> None:
    with ScriptedEngine(tiny_tokenizer, lambda request: refuse(400, "no such tag")) as engine:
        deployment = Deployment(tiny_card, ServiceOptions(), engine.endpoint)
        episode = TokenStream([1, 2], [], [[]], 5, {}, None)
        async with engine.endpoint.client(30.0) as http:
            with pytest.raises(RequestFailed, match=r"answered with 400: .*no such tag"):
                await BareClient(deployment, http, "salt").play([episode])


async def test_the_client_alone_plays_whole_episodes_against_answers_given_in_turn(
    corridor: Runs, tiny_tokenizer: ChatTokenizer
) -> None:
    setup = playing_setup(corridor(script()).overrides())
    answer = tiny_tokenizer.framed(call("look").written)
    answers = [[*answer, tiny_tokenizer.control_id("<|im_end|>")]]
    with bench_run(setup) as run:
        figures = await measure_client(setup, 3, answers, lambda line: None, run)
        rows = [row for of_episode in run.rows.values() for row in of_episode]
    in_flight, turns, prompt_tokens, cpu_s, turns_per_cpu_s, mb = (each.value for each in figures)
    assert (in_flight, turns) == (3, 3 * 20)  # it only looks, up to the limit
    assert {row.status for row in rows} == {"ok"}
    assert prompt_tokens > len(answer)
    assert turns_per_cpu_s == pytest.approx(60 / cpu_s)
    assert figures[4].at_least == 250
    assert mb > 1  # a host is a process
