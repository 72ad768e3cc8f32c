"""Sending the battery: what counts as valid."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from serving.errors import RequestFailed, RequestRefused
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.bench.measurement import Measurement
from speedrunner.bench.probes import Counts, probe_tools
from tests.scripted_engine import Answer, Request, call, cut, refuse, sample_call, say
from tests.scripted_runs import ScriptedModel, scripted_model

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


def kinds(found: Measurement) -> dict[str, Counts]:
    return {each.probe: each for each in found.tables[0].rows}


async def test_the_battery_is_sent_in_turn_and_valid_calls_are_counted_by_kind(played: Played) -> None:
    report, scripted = await played(sample_call, 14)
    assert kinds(report)["all"] == Counts("all", 14, 0, 0)
    assert [counts.valid for counts in kinds(report).values()] == [2, 2, *[1] * 10, 14]
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
    assert kinds(report)["all"] == Counts("all", 8, 3, 1)
    assert kinds(report)["integer"].truncated == 1
    assert ([figure.value for figure in report.figures[:3]], report.met) == ([3, 1, 1], False)
    assert [problem.partition(":")[0] for problem in report.facts["problems"]] == [
        *("enum", "integer", "float", "boolean")
    ]
    assert "no such grammar" in report.facts["problems"][-1]


async def test_a_call_that_does_not_fit_the_context_is_truncated(played: Played) -> None:
    report, _ = await played(sample_call, 12, context=2_000)
    assert kinds(report)["all"] == Counts("all", 11, 0, 1)
    assert report.facts["problems"] == [report.facts["problems"][0]]
    assert report.facts["problems"][0].startswith("60 tools: the conversation has")


async def test_vllms_own_calls_are_asked_to_be_strict(played: Played) -> None:
    report, scripted = await played(sample_call, 26, api="chat")
    assert kinds(report)["all"].valid == 26
    for request in scripted.server.requests:
        assert request.path.endswith("/chat/completions")
        assert all(tool["function"]["strict"] for tool in request.tools.values())
        assert request.body["tool_choice"] == "required"


async def test_an_engine_that_refuses_or_fails_ends_the_probe(played: Played) -> None:
    with pytest.raises(RequestRefused, match="auto tool choice"):
        await played(lambda request: refuse(400, "needs auto tool choice"), 4, api="chat")
    with pytest.raises(RequestFailed):
        await played(lambda request: refuse(503, "busy"), 4)
