"""The client's benchmark: what it sends, and what it reports."""

from __future__ import annotations

import msgspec
import pytest

from serving.model_config import ModelConfig
from speedrunner.config.schema import InvalidConfig
from tests.bench.client_cpu import canned_engine, measure_client

pytestmark = pytest.mark.process


async def test_every_number_in_flight_and_every_length_is_a_level(tiny_model_config: ModelConfig) -> None:
    found = await measure_client(tiny_model_config, [1, 3], [500, 2000], lambda line: None)
    levels = found.tables[0].rows
    assert [(level.in_flight, level.tokens) for level in levels] == [(1, 500), (3, 500), (1, 2000)]
    assert all(level.cpu_ms > 0 for level in levels)
    (figure,) = found.figures
    assert figure.value == max(level.cpu_ms for level in levels)
    assert figure.at_most == 3.0


async def test_a_model_on_another_route_is_refused(tiny_model_config: ModelConfig) -> None:
    with pytest.raises(InvalidConfig, match="chat API"):
        await measure_client(
            msgspec.structs.replace(tiny_model_config, api="chat"), [1], [9], lambda line: None
        )


async def test_the_engine_gives_its_answers_in_turn_and_the_prompt_back() -> None:
    async with canned_engine([[1, 2], [3]]) as (endpoint, _), endpoint.client(60.0) as client:
        replies = [
            (await client.post("/v1/completions", b'{"model":"m","prompt":[7,8,9]}')).json() for _ in range(3)
        ]
    assert [reply["choices"][0]["token_ids"] for reply in replies] == [[1, 2], [3], [1, 2]]
    assert replies[0]["choices"][0]["prompt_token_ids"] == [7, 8, 9]
    assert replies[1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 1}
