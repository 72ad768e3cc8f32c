"""The simulated engine: its cache, its order of work, and its answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import pytest

from serving.engine.cache_config import HYBRID_EXTRA_BLOCKS, CacheConfig
from serving.probes.tool_battery import ToolProbe, battery
from serving.tokens.formats import FORMATS
from serving.tokens.grammar import constant, one_of, structural_tag
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.transcript import Transcript
from tests.bench.simulated_engine import Answers, EngineSpec, LimitedCache, SimulatedReplica

HYBRID = CacheConfig(block_size=64, num_gpu_blocks=40, enable_prefix_caching=True, match_unit=16, hybrid=True)


def spec(folder: str = "", **changes: object) -> EngineSpec:
    """Return an engine that is faster than any timer."""
    made = EngineSpec(
        model="any", context=16384, folder=folder, tool_format="qwen3_json", cache=HYBRID, replicas=1,
        sequences=2, step_s=1e-6, prefill_per_s=1e9, answer_tokens=60,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)  # type: ignore[arg-type]


class TestTheCache:
    def test_serves_a_hybrid_prompt_from_the_end_of_the_last_one(self) -> None:
        cache, prompt = LimitedCache(HYBRID), list(range(150))
        assert cache.send(prompt, "") == 0
        assert cache.send([*prompt, *range(150, 200)], "") == 144

    def test_serves_an_attention_prompt_in_whole_blocks(self) -> None:
        blocks = msgspec.structs.replace(HYBRID, match_unit=64, hybrid=False)
        cache, prompt = LimitedCache(blocks), list(range(150))
        cache.send(prompt, "")
        assert cache.send([*prompt, *range(150, 200)], "") == 128

    def test_keeps_prompts_with_other_salts_apart(self) -> None:
        cache, prompt = LimitedCache(HYBRID), list(range(150))
        cache.send(prompt, "one")
        assert cache.send(prompt, "other") == 0

    def test_forgets_the_conversation_that_was_used_longest_ago(self) -> None:
        each = 150 // HYBRID.block_size + HYBRID_EXTRA_BLOCKS
        cache = LimitedCache(HYBRID)
        prompts = [list(range(start, start + 150)) for start in (0, 1000, 2000)]
        assert 2 * each <= HYBRID.num_gpu_blocks - 1 < 3 * each
        for prompt in prompts:
            cache.send(prompt, "")
        assert cache.send(prompts[2], "") > 0
        assert cache.send(prompts[0], "") == 0

    def test_holds_one_growing_conversation_of_its_whole_size(self) -> None:
        cache, prompt = LimitedCache(HYBRID), list(range(100))
        while len(prompt) < 64 * (HYBRID.num_gpu_blocks - 1 - HYBRID_EXTRA_BLOCKS):
            cached = cache.send(prompt, "")
            prompt += range(len(prompt), len(prompt) + 100)
        last = len(prompt) - 200
        assert cached == max((last - 1) // 16 * 16, last // 64 * 64)

    def test_keeps_a_prefix_that_was_sent_alone_for_all_that_share_it(self) -> None:
        cache, prefix = LimitedCache(HYBRID), list(range(150))
        cache.send(prefix, "")
        for start in (1000, 2000):
            assert cache.send([*prefix, *range(start, start + 30)], "") == 144


async def finished(replica: SimulatedReplica, work: list[tuple[int, int]]) -> list[int]:
    """Return the numbers of these requests (uncached and output tokens), in the order of their answers."""
    order: list[int] = []

    async def send(number: int, uncached: int, output: int) -> None:
        await replica.compute(uncached, output)
        order.append(number)

    serving = asyncio.create_task(replica.work())
    await asyncio.gather(*(send(number, *each) for number, each in enumerate(work)))
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    assert replica.active == 0
    return order


async def test_a_replica_computes_so_many_requests_at_the_same_time_and_then_the_next() -> None:
    assert await finished(SimulatedReplica(spec()), [(10, 500), (10, 50), (10, 20)]) == [1, 2, 0]
    assert await finished(SimulatedReplica(spec(sequences=1)), [(10, 500), (10, 50)]) == [0, 1]


@pytest.mark.parametrize("tool_format", ["qwen3_json", "qwen3_xml"])
@pytest.mark.parametrize("probe", battery(), ids=lambda probe: probe.kind)
def test_each_answer_is_a_valid_call_after_a_thought(
    tiny_folder: str, tiny_tokenizer: ChatTokenizer, probe: ToolProbe, tool_format: str
) -> None:
    answers = Answers(spec(tiny_folder, tool_format=tool_format))
    transcript = Transcript(
        tiny_tokenizer, FORMATS[tool_format], [{"role": "user", "content": "Go."}], list(probe.tools),
        thinking_style="generated", thinking_tokens=40, string_tokens=24, thinking_closing="Enough.",
    )  # fmt: skip
    ids, reason = answers.answer(structural_tag(transcript.grammar), transcript.answer_tokens)
    read = transcript.answer(ids)
    assert (read.problem, reason) == (None, "stop")
    assert read.call is not None
    assert read.call.name in [tool.name for tool in probe.tools]
    assert 0 < read.reasoning_tokens <= 40 + 8


class TestAnAnswer:
    def test_is_never_the_call_that_ends_an_episode_if_there_is_another(self, tiny_folder: str) -> None:
        answers = Answers(spec(tiny_folder))
        both = one_of(constant("walk"), constant("submit_answer"))
        tag = msgspec.json.decode(structural_tag(both))["format"]
        assert {answers.text(tag, "") for _ in range(50)} == {"walk"}
        only = msgspec.json.decode(structural_tag(constant("submit_answer")))["format"]
        assert answers.text(only, "") == "submit_answer"

    def test_ends_at_the_limit_of_the_request(self, tiny_folder: str) -> None:
        answers = Answers(spec(tiny_folder))
        tag = structural_tag(constant("go to the door " * 20))
        ids, reason = answers.answer(tag, 5)
        assert (len(ids), reason) == (5, "length")
        assert answers.answer(tag, 10_000)[1] == "stop"
