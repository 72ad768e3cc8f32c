"""Probes of tool calls and of the prefix cache."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.deployment import ServiceOptions, deploy
from serving.errors import EngineDead, RequestFailed
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.bench.measurement import Measurement
from speedrunner.bench.probes import EDITS, SIBLINGS, CacheRequest, probe_cache, probe_tools
from tests.probe_engines import Forgetful, Off, Probed, Silent
from tests.scripted_engine import BLOCK, Answer, Request, call, cut, refuse, sample_call, say
from tests.scripted_runs import ScriptedModel, scripted_model


@pytest.fixture
def bare(tiny_model_config: ModelConfig, tiny_folder: str) -> ModelConfig:
    """The random model's config without its recipe, which would run each time."""
    return msgspec.structs.replace(tiny_model_config, recipe=None)


async def probed(
    kind: Callable[..., Probed], model_config: ModelConfig, tokenizer: ChatTokenizer, folder: Path, turns: int
) -> Measurement:
    with kind(tokenizer) as server:
        options = ServiceOptions(url=str(server.endpoint))
        async with deploy(model_config, options, log=folder / "unused.log") as deployment:
            return await probe_cache(deployment, print, turns)


def requests(found: Measurement, part: str) -> list[CacheRequest]:
    return [each for each in found.tables[0].rows if each.cached_tokens.startswith(part)]


async def test_an_exact_cache_gives_all_that_it_can(
    bare: ModelConfig, tiny_tokenizer: ChatTokenizer, tmp_path: Path
) -> None:
    found = await probed(Probed, bare, tiny_tokenizer, tmp_path, turns=4)
    parts = ("turn", "sibling", "edit", "all")
    turns, siblings, edits, (whole,) = (requests(found, part) for part in parts)
    assert len(turns) == 4
    assert turns[0].expected == turns[0].reported == 0
    for earlier, later in itertools.pairwise(turns):
        assert earlier.prompt // BLOCK * BLOCK <= later.expected == later.reported < later.prompt
    assert len(siblings) == SIBLINGS
    assert {each.expected for each in siblings} == {found.facts["prefix"] // BLOCK * BLOCK}
    assert len(edits) == len(EDITS)
    assert all(0 < each.expected == each.reported < each.prompt - BLOCK for each in edits)
    assert whole.reported == whole.expected == sum(each.expected for each in [*turns, *siblings, *edits])
    assert (found.figures[0].value, found.met, found.facts["advice"]) == (1.0, True, [])


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Silent, "does not report cached tokens: start it with --enable-prompt-tokens-details"),
        (Off, "its prefix cache is off: start it with --enable-prefix-caching"),
        (Forgetful, "other requests may have evicted it from the cache, or the cache is too small"),
    ],
)
async def test_what_keeps_tokens_from_the_cache_is_named(
    bare: ModelConfig,
    tiny_tokenizer: ChatTokenizer,
    tmp_path: Path,
    kind: Callable[..., Probed],
    told: str,
) -> None:
    report = await probed(kind, bare, tiny_tokenizer, tmp_path, turns=2)
    assert (report.figures[0].value, report.met) == (0.0, False)
    (line,) = report.facts["advice"]
    assert told in line


Played = Callable[..., Awaitable[tuple[Measurement, ScriptedModel]]]


@pytest.fixture
def played(tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer) -> Played:
    """Send so many probes to an engine that answers by a policy; `changes` to the model config."""

    async def played(
        policy: Callable[[Request], Answer], count: int, **changes: Any
    ) -> tuple[Measurement, ScriptedModel]:
        model_config = msgspec.structs.replace(tiny_model_config, **changes)
        async with scripted_model(policy, model_config, tiny_tokenizer) as scripted:
            actor = model_config.roles.actor
            return await probe_tools(scripted.model, actor, count, 4, lambda line: None), scripted

    return played


def kinds(found: Measurement) -> dict[str, tuple[int, ...]]:
    """The valid, invalid and truncated calls of each kind."""
    return {kind: tuple(counts) for kind, *counts in (each.values() for each in found.tables[0].rows)}


async def test_the_battery_is_sent_in_turn_and_valid_calls_are_counted_by_kind(played: Played) -> None:
    report, scripted = await played(sample_call, 14)
    assert kinds(report)["all"] == (14, 0, 0)
    assert [valid for valid, *_ in kinds(report).values()] == [2, 2, *[1] * 10, 14]
    assert (report.facts["problems"], report.met) == ([], True)
    assert all(row.labels["role"] == "probe" for row in scripted.rows)


async def test_calls_that_are_invalid_or_cut_are_told_apart(played: Played) -> None:
    def policy(request: Request) -> Answer:
        (first, *_) = request.tools
        match first:
            case "probe_turn":
                return call("probe_turn", direction="up")
            case "probe_count":
                return cut(sample_call(request))
            case "probe_weigh":
                return say("")
            case "probe_switch":
                return refuse(400, "no such grammar")
        return sample_call(request)

    report, _ = await played(policy, 12)
    assert kinds(report)["all"] == (8, 3, 1)
    assert kinds(report)["integer"][2] == 1
    assert ([figure.value for figure in report.figures[:3]], report.met) == ([3, 1, 1], False)
    assert [problem.partition(":")[0] for problem in report.facts["problems"]] == [
        *("enum", "integer", "float", "boolean")
    ]
    assert "no such grammar" in report.facts["problems"][-1]


async def test_a_call_that_does_not_fit_the_context_is_truncated(played: Played) -> None:
    report, _ = await played(sample_call, 12, context=2_000)
    assert kinds(report)["all"] == (11, 0, 1)
    assert report.facts["problems"] == [report.facts["problems"][0]]
    assert report.facts["problems"][0].startswith("60 tools: the conversation has")


async def test_vllms_own_calls_are_asked_to_be_strict(played: Played) -> None:
    report, scripted = await played(sample_call, 26, api="chat")
    assert kinds(report)["all"][0] == 26
    for request in scripted.server.requests:
        assert request.path.endswith("/chat/completions")
        assert all(tool["function"]["strict"] for tool in request.tools.values())
        assert request.body["tool_choice"] == "required"


async def test_an_engine_that_refuses_or_fails_ends_the_probe(played: Played) -> None:
    with pytest.raises(EngineDead, match="auto tool choice"):
        await played(lambda request: refuse(400, "needs auto tool choice"), 4, api="chat")
    with pytest.raises(RequestFailed):
        await played(lambda request: refuse(503, "busy"), 4)
