"""Long prompts: their lengths, what is sent of each, and when they become too long for the time."""

from __future__ import annotations

import pytest

from serving.deployment import Deployment, ServiceOptions
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.bench.long_prompts import measure_long_prompts, prompt_lengths
from tests.scripted_engine import ScriptedEngine, say


@pytest.mark.parametrize(
    ("context", "lengths"),
    [
        (4096, [4047]),
        (16_384, [8192, 16_335]),
        (131_072, [8192, 16_384, 32_768, 65_536, 131_023]),
    ],
)
def test_lengths_double_up_to_the_context(context: int, lengths: list[int]) -> None:
    assert prompt_lengths(context) == lengths


@pytest.mark.parametrize(("seconds", "measured"), [(1e9, [8192, 16_335]), (0.0, [8192])])
async def test_each_length_is_sent_cold_then_a_little_longer_then_to_write(
    tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer, seconds: float, measured: list[int]
) -> None:
    with ScriptedEngine(tiny_tokenizer, lambda request: say("words " * 20)) as engine:
        deployment = Deployment(
            tiny_model_config, ServiceOptions(), engine.endpoint, tokenizer=tiny_tokenizer
        )
        found = await measure_long_prompts(deployment, seconds, lambda line: None)
        (table,) = found.tables
        assert [row.tokens for row in table.rows] == measured
        for row in table.rows:
            assert row.tokens - 32 <= row.cached <= row.tokens + 16
            assert row.cold_per_s == pytest.approx(row.tokens / row.cold_s)
        sent = [request.prompt for request in engine.requests if len(request.prompt) > 1]
        assert len(sent) == len(measured)  # those that write; the others want one token
    assert len(found.notes) == 2 - len(measured)
    assert all(note.startswith("16335 tokens: not measured") for note in found.notes)
