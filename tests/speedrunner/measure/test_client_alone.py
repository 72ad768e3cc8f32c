"""The client by itself, against an engine that answers at once."""

from __future__ import annotations

import pytest

from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.measure.client_alone import measure_client
from speedrunner.measure.engine import playing_setup
from speedrunner.measure.played_episodes import bench_run
from tests.scripted_engine import call
from tests.scripted_runs import Runs, script


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
