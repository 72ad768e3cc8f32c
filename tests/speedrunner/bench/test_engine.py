"""The engine with canned answers."""

from __future__ import annotations

import pytest

from speedrunner.bench.engine import canned_engine


@pytest.mark.process
async def test_the_engine_gives_its_answers_in_turn_and_the_prompt_back() -> None:
    async with canned_engine([[1, 2], [3]]) as endpoint, endpoint.client(60.0) as client:
        replies = [
            (await client.post("/v1/completions", b'{"model":"m","prompt":[7,8,9]}')).json() for _ in range(3)
        ]
    assert [reply["choices"][0]["token_ids"] for reply in replies] == [[1, 2], [3], [1, 2]]
    assert replies[0]["choices"][0]["prompt_token_ids"] == [7, 8, 9]
    assert replies[1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 1}
