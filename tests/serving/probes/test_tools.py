"""Sending the battery: what counts as valid, and what is measured beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from serving.cards import ModelCard
from serving.errors import RequestFailed, RequestRefused
from serving.probes.tool_battery import CODE_TOKENS, battery
from serving.probes.tools import LABELS, ToolsReport, probe_tools, send, with_room
from serving.tokens.tokenizer import ChatTokenizer
from tests.probe_engines import sample_call
from tests.scripted_engine import Answer, Request, call, cut, refuse, say
from tests.scripted_runs import ScriptedModel, scripted_model


async def played(
    policy: Callable[[Request], Answer],
    card: ModelCard,
    tokenizer: ChatTokenizer,
    count: int,
    in_flight: int = 4,
) -> tuple[ToolsReport, ScriptedModel]:
    async with scripted_model(policy, card, tokenizer) as scripted:
        return await probe_tools(scripted.model, card.roles.actor, count, in_flight), scripted


def constrained(request: Request) -> bool:
    return "structured_outputs" in request.body


async def test_the_battery_is_sent_in_turn_and_valid_calls_are_counted_by_kind(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    report, scripted = await played(sample_call, tiny_card, tiny_tokenizer, count=14)
    assert (report.total.valid, report.total.invalid, report.total.truncated) == (14, 0, 0)
    assert [counts.valid for counts in report.kinds.values()] == [2, 2, *[1] * 10]
    assert report.problems == []
    assert all(row.labels["role"] == "probe" for row in scripted.rows)


async def test_calls_that_are_invalid_or_cut_are_told_apart(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    def policy(request: Request) -> Answer:
        (first, *_) = request.tools
        match first:
            case "probe_turn":
                return call("probe_turn", direction="up")
            case "probe_count":
                return cut(sample_call(request))
            case "probe_weigh":
                return say("Gladly.")
            case "probe_switch":
                return refuse(400, "no such grammar")
        return sample_call(request)

    report, _ = await played(policy, tiny_card, tiny_tokenizer, count=12)
    assert (report.total.valid, report.total.invalid, report.total.truncated) == (8, 3, 1)
    assert report.kinds["integer"].truncated == 1
    assert [problem.partition(":")[0] for problem in report.problems] == [
        *("enum", "integer", "float", "boolean")
    ]
    assert "no such grammar" in report.problems[-1]


async def test_a_call_that_does_not_fit_the_context_is_truncated(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    small = msgspec.structs.replace(tiny_card, context=2_000)
    report, _ = await played(sample_call, small, tiny_tokenizer, count=12)
    assert (report.total.valid, report.total.truncated) == (11, 1)
    assert report.problems == [report.problems[0]]
    assert report.problems[0].startswith("60 tools: the conversation has")


async def test_free_requests_repeat_prompts_and_lengths_without_a_grammar(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    def policy(request: Request) -> Answer:
        return sample_call(request) if constrained(request) else say("x" * 4096)

    report, scripted = await played(policy, tiny_card, tiny_tokenizer, count=40)
    requests = scripted.server.requests
    answer_tokens = [row.usage.completion for row in scripted.rows if row.usage]
    pairs = zip(requests, answer_tokens, strict=True)
    by_kind: dict[bool, list[tuple[tuple[int, ...], int]]] = {True: [], False: []}
    for request, tokens in pairs:
        by_kind[constrained(request)].append((request.prompt, tokens))
    assert len(by_kind[True]) == 40
    # The first twelve compile grammars and fill the cache: they are not timed.
    timed = by_kind[True][12:]
    assert sorted(prompt for prompt, _ in timed) == sorted(prompt for prompt, _ in by_kind[False])
    assert report.constrained.tokens == report.free.tokens > 0
    assert all(request.body["ignore_eos"] for request in requests if not constrained(request))
    # In turn: rounds of four for each slot.
    assert [constrained(request) for request in requests] == (
        [True] * 12 + [True] * 16 + [False] * 16 + [True] * 12 + [False] * 12
    )
    assert report.overhead is not None
    assert report.overhead > 0


async def test_a_single_pass_of_the_battery_measures_no_speed(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    report, scripted = await played(sample_call, tiny_card, tiny_tokenizer, count=12)
    assert report.overhead is None
    assert all(map(constrained, scripted.server.requests))


async def test_no_more_requests_than_allowed_are_in_flight(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    seen: list[int] = []
    waiting = 0
    async with scripted_model(sample_call, tiny_card, tiny_tokenizer) as scripted:
        engine = scripted.model.engine
        complete = engine.complete

        async def counted(*given: Any, **options: Any) -> Any:
            nonlocal waiting
            waiting += 1
            seen.append(waiting)
            try:
                return await complete(*given, **options)
            finally:
                waiting -= 1

        engine.complete = counted  # type: ignore[method-assign]
        await probe_tools(scripted.model, tiny_card.roles.actor, 30, in_flight=3)
    assert max(seen) == 3


async def test_thinking_has_the_budget_of_the_role(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    thinking = msgspec.structs.replace(tiny_card.roles.actor, thinking_tokens=21)
    async with scripted_model(sample_call, tiny_card, tiny_tokenizer) as scripted:
        await send(scripted.model, thinking, battery()[0], LABELS)
        tag = scripted.server.requests[0].body["structured_outputs"]["structural_tag"]
        assert '"max_tokens": 21' in tag
        assert scripted.model.card is tiny_card


def test_strings_get_the_room_that_a_probe_needs(tiny_card: ModelCard) -> None:
    actor = tiny_card.roles.actor
    rooms = {probe.kind: with_room(actor, probe).string_tokens for probe in battery()}
    assert rooms.pop("2 kB of code") == CODE_TOKENS
    assert set(rooms.values()) == {actor.string_tokens}


async def test_vllms_own_calls_are_asked_to_be_strict(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    chat = msgspec.structs.replace(tiny_card, route="chat")
    report, scripted = await played(sample_call, chat, tiny_tokenizer, count=26)
    assert report.total.valid == 26
    assert report.constrained.tokens > 0
    assert report.overhead is None
    for request in scripted.server.requests:
        assert request.path.endswith("/chat/completions")
        assert all(tool["function"]["strict"] for tool in request.tools.values())
        assert request.body["tool_choice"] == "required"


async def test_hosted_models_get_the_tools_as_they_are(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    hosted = msgspec.structs.replace(tiny_card, route="chat", path=None, base_url="https://api.example/v1")
    _, scripted = await played(sample_call, hosted, tiny_tokenizer, count=2)
    assert "strict" not in str(scripted.server.requests[0].tools)


async def test_an_engine_that_refuses_or_fails_ends_the_probe(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    chat = msgspec.structs.replace(tiny_card, route="chat")
    with pytest.raises(RequestRefused, match="auto tool choice"):
        await played(lambda request: refuse(400, "needs auto tool choice"), chat, tiny_tokenizer, count=4)
    with pytest.raises(RequestFailed):
        await played(lambda request: refuse(503, "busy"), tiny_card, tiny_tokenizer, count=4)
