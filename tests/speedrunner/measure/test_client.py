"""The client by itself, against an engine that answers at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.meter import LedgerRow
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.measure.client import measure_client
from speedrunner.measure.episodes import bench_run
from speedrunner.measure.serving import bench_setup
from tests.scripted_engine import call
from tests.scripted_runs import Runs, script


async def test_the_client_alone_plays_whole_episodes_against_answers_given_in_turn(
    corridor: Runs, tmp_path: Path, tiny_tokenizer: ChatTokenizer
) -> None:
    setup = bench_setup(corridor(script()).overrides())
    answer = tiny_tokenizer.framed(call("look").written)
    answers = [[*answer, tiny_tokenizer.control_id("<|im_end|>")]]
    with bench_run(setup, tmp_path / "bench") as run:
        client = await measure_client(setup, 3, answers, lambda line: None, run)
        rows = run.directory.requests(LedgerRow)
    assert (client.client_in_flight, client.client_turns) == (3, 3 * 20)  # it only looks, up to the limit
    assert {row.status for row in rows} == {"ok"}
    assert client.client_prompt_tokens > len(answer)
    assert client.turns_per_second_per_core == pytest.approx(60 / client.client_cpu_s)
    assert client.mb_per_episode > 1  # a host is a process
