"""What a run refuses before its first episode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.deployment import ServiceOptions, deploy
from serving.engine.capacity import CacheConfig
from serving.errors import ServerFailed
from serving.meter import LedgerRow
from serving.model import Model
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.options import Check
from serving.probes.start_check import StartCheck, advice, check_engine
from serving.probes.tool_battery import battery
from serving.tokens.grammar import one_of
from serving.tokens.tokenizer import ChatTokenizer
from tests.probe_engines import Off, Probed
from tests.scripted_engine import Answer, Request, call, cut, refuse, sample_call, say
from tests.serving.conftest import Served


@dataclass
class Checked:
    model: Model
    server: Probed
    rows: list[LedgerRow]


@asynccontextmanager
async def engine(
    model_config: ModelConfig,
    tokenizer: ChatTokenizer,
    policy: Callable[[Request], Answer] = sample_call,
    kind: Callable[..., Probed] = Probed,
) -> AsyncIterator[Checked]:
    rows: list[LedgerRow] = []
    with kind(tokenizer, policy) as server:
        options = ServiceOptions(url=str(server.endpoint))
        async with (
            deploy(model_config, options, log=Path("unused.log")) as deployment,
            deployment.client(rows.append) as model,
        ):
            yield Checked(model, server, rows)


async def test_a_good_engine_passes_with_one_conversation(
    bare: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> None:
    async with engine(bare, tiny_tokenizer) as checked:
        await check_engine(checked.model)
        (ready, *rows) = checked.rows
        assert ready.labels["role"] == "readiness"
        assert [row.labels["role"] for row in rows] == ["probe"] * 2
        # A call needs a grammar, and is short: the first episode waits for it.
        ((name, tool),) = checked.server.requests[1].tools.items()
        schema = tool["function"]["parameters"]
        assert name == "probe_search"
        assert "enum" in schema["properties"]["order"]
        assert set(schema["properties"]) - set(schema["required"]) == {"limit", "order", "exact"}
        assert checked.server.requests[1].body["max_tokens"] < 300
        assert len(checked.server.requests[1].prompt) < 3000
        assert checked.model.model_config is bare


@pytest.mark.parametrize(
    ("spoiled", "told"),
    [
        (
            lambda request: call("probe_search", query="x", order="best"),
            "does not enforce the grammar of tool calls (",
        ),
        (lambda request: cut(sample_call(request)), "ends tool calls too early ("),
        (
            lambda request: refuse(400, "unknown grammar"),
            "refuses the grammar of tool calls: status 400",
        ),
    ],
)
@pytest.mark.parametrize("turn", [1, 2])
async def test_an_engine_that_fails_one_turn_is_refused(
    bare: ModelConfig,
    tiny_tokenizer: ChatTokenizer,
    spoiled: Callable[[Request], Answer],
    told: str,
    turn: int,
) -> None:
    def policy(request: Request) -> Answer:
        return (spoiled if request.number == turn else sample_call)(request)

    async with engine(bare, tiny_tokenizer, policy) as checked:
        with pytest.raises(ServerFailed) as caught:
            await check_engine(checked.model)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_end_of_the_context_says_nothing_about_an_engine(
    bare: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> None:
    small = msgspec.structs.replace(bare, context=300)
    async with engine(small, tiny_tokenizer, lambda request: say("x" * 4096)) as checked:
        await check_engine(checked.model)
        assert [row.status for row in checked.rows] == ["ok"]


async def test_an_engine_whose_cache_gives_nothing_is_refused(
    bare: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> None:
    async with engine(bare, tiny_tokenizer, kind=Off) as checked:
        with pytest.raises(ServerFailed, match=r"reports no cached tokens where .*--enable-prefix-caching"):
            await check_engine(checked.model)


async def test_no_cache_is_asked_for_where_the_model_config_has_none(
    bare: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> None:
    off = msgspec.structs.replace(bare.server, flags={**bare.server.flags, "enable-prefix-caching": False})
    async with engine(msgspec.structs.replace(bare, server=off), tiny_tokenizer, kind=Off) as checked:
        await check_engine(checked.model)


@pytest.mark.parametrize(
    ("changes", "mode", "probes", "said"),
    [
        ({}, "once", 2, ["checking"]),
        ({}, "never", 0, ["serving.check=never:"]),
        ({"api": "chat"}, "once", 0, []),
    ],
)
async def test_an_engine_is_checked_once_for_all_runs_unless_the_options_or_the_api_say_no(
    bare: ModelConfig,
    tiny_tokenizer: ChatTokenizer,
    changes: dict[str, Any],
    mode: Check,
    probes: int,
    said: list[str],
) -> None:
    lines: list[str] = []
    check = StartCheck(mode, lines.append)
    async with engine(msgspec.structs.replace(bare, **changes), tiny_tokenizer) as checked:
        for _ in range(2):
            await check.require(checked.model)
        assert len(checked.server.requests) == 1 + probes  # the first shows that the engine answers
    assert [line.partition(" ")[0] for line in lines] == said


HYBRID = CacheConfig(
    block_size=640, num_gpu_blocks=100, enable_prefix_caching=True, match_unit=16, hybrid=True
)


def test_hybrid_models_need_a_match_unit_and_on_a_cpu_a_block_size() -> None:
    model_config = load_model_config("tiny-hybrid")
    assert advice(model_config, HYBRID, hits=True, reported=True) == []
    whole_blocks = msgspec.structs.replace(HYBRID, match_unit=640)
    (line,) = advice(model_config, whole_blocks, hits=True, reported=True)
    assert "whole blocks of 640 tokens" in line
    assert "--prefix-match-unit 16" in line
    (line,) = advice(model_config, HYBRID, hits=False, reported=False)
    assert "--block-size 640" in line
    on_gpu = load_model_config("qwen3.5-27b")
    assert advice(on_gpu, HYBRID, hits=False, reported=False) == []


CODE = '''def best(board: dict[str, list[int]], depth: int = 3) -> tuple[int, str]:
    """Say "which" move\tis best; — naïvely."""
    if not board or depth == 0:
        return 0, 'none \\\\ "at all"'
    return max((sum(row), name) for name, row in board.items() if row[0] <= depth != 7)

'''


def test_two_kilobytes_of_code_may_be_written(served: Served) -> None:
    (probe,) = (probe for probe in battery() if probe.kind == "2 kB of code")
    code = (CODE * 8)[:2048]
    text = served.rendered("probe_run", {"code": code})
    ids = [*served.tokenizer.framed(text), served.walks.end]
    grammar = one_of(*(served.format.call(tool, probe.string_tokens) for tool in probe.tools))
    matcher = served.walks._matcher(grammar)
    assert all(map(matcher.accept_token, ids))
    assert matcher.is_terminated()
    found = served.format.parse(text, {tool.name: tool for tool in probe.tools})
    assert found.arguments == {"code": code}
