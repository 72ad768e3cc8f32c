"""Probes of an engine: the validity of its tool calls, and its prefix cache (`speedrunner bench probe`).

The probe of the cache compares the cached tokens of known conversations with the maximum. One conversation
grows turn by turn. Then siblings that share a prefix, warmed up before, start at once. Then the prefix is
edited. The most that the cache can provide for a request is what it keeps, by its rule, of the turn before,
of the prefix, or of the prefix before the edit.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Any, get_args

import msgspec

from serving.deployment import Deployment
from serving.engine.capacity import CacheConfig
from serving.engine.client import run_together
from serving.engine.metrics import read_counters
from serving.meter import LedgerRow, Spending
from serving.model import Messages, Model
from serving.model_config import Role
from serving.probes.start_check import OTHERS, advice, text_of
from serving.probes.tool_battery import ProbeAnswer, ToolProbe, Validity, answer_probe, battery
from serving.tokens.transcript import common_prefix
from speedrunner.bench.engine import CACHE_TARGETS, cache_of, describe_cache
from speedrunner.bench.measurement import MeasuredFigure, MeasuredTable, Measurement
from speedrunner.plain.console import Status

PROBLEMS_SHOWN = 5
TURNS = 8
SYSTEM_TOKENS = 2000
REPLY_TOKENS = 160
SIBLINGS = 8
EDITS = (0.6, 0.95)
"""Places of the edits: shares of the system message."""
NOTE_TOOLS = next(list(probe.tools) for probe in battery() if probe.kind == "quotes")
"""Tools with calls that are short texts, or have no arguments."""


def count_calls(kind: str, answers: Sequence[ProbeAnswer]) -> dict[str, Any]:
    """Return the calls of one kind of probe by validity."""
    found = Counter(answer.validity for answer in answers)
    return {"probe": kind, **{name: found[name] for name in get_args(Validity)}}


async def measure_tools(
    deployment: Deployment, count: int, in_flight: int, status: Status, cap_usd: float | None = None
) -> Measurement:
    """Send the probes to an engine, for at most `cap_usd`. Raises as `probe_tools`."""
    async with deployment.client(lambda row: None, spending=Spending(cap_usd)) as model:
        return await probe_tools(model, model.model_config.role("actor"), count, in_flight, status)


async def probe_tools(model: Model, role: Role, count: int, in_flight: int, status: Status) -> Measurement:
    """Send `count` probes of the battery in turn, and count the valid, invalid and truncated calls.

    Args:
        role: sampling and budgets; strings get more room if a probe needs it.
        in_flight: requests at the same time.

    Raises `ServingError`: the engine failed. On the chat API also if it refuses a probe.
    """
    model_config = model.model_config
    sent = not_valid = 0

    async def send(probe: ToolProbe) -> ProbeAnswer:
        nonlocal sent, not_valid
        room = max(role.string_tokens, probe.string_tokens)
        found = await answer_probe(model, msgspec.structs.replace(role, string_tokens=room), probe)
        sent += 1
        not_valid += found.validity != "valid"
        status(f"{sent} of {count} probes, {not_valid} of them not valid")
        return found

    probes = list(itertools.islice(itertools.cycle(battery()), count))
    answers = await run_together(send, probes, in_flight)
    kinds = [
        count_calls(probe.kind, [each for each in answers if each.probe is probe]) for probe in battery()
    ]
    total = count_calls("all", answers)
    problems = [f"{each.probe.kind}: {each.problem}" for each in answers if each.problem is not None]
    shown = problems[:PROBLEMS_SHOWN]
    empty = sum(each.is_empty for each in answers)
    most = 0 if model_config.api == "completions" else None
    thought = f"{role.thinking_tokens} tokens of reasoning" if role.thinking_tokens else "no reasoning"
    return Measurement(
        f"{model_config.name}: {len(answers)} probes on the {model_config.api} API, {in_flight} in "
        f"flight, {thought}",
        figures=[
            MeasuredFigure("calls invalid", total["invalid"], at_most=most),
            MeasuredFigure("calls truncated", total["truncated"], at_most=most),
            MeasuredFigure("answers that ended at once or inside a thought", empty, at_most=most),
        ],
        tables=[MeasuredTable("kinds", [*kinds, total])],
        facts={
            "model": model_config.name,
            "api": model_config.api,
            "thinking_tokens": role.thinking_tokens,
            "count": len(answers),
            "in_flight": in_flight,
            "problems": shown,
        },
        notes=[f"not valid, such as: {problem}" for problem in shown],
    )


class CacheRequest(msgspec.Struct, frozen=True):
    """One request, in tokens.

    Attributes:
        cached_tokens: name of the request, for users.
        expected: the most prompt tokens that the cache can provide.
        reported: the tokens that the engine reports as cached.
    """

    cached_tokens: str
    prompt: int
    expected: int
    reported: int


async def probe_cache(deployment: Deployment, status: Status, turns: int = TURNS) -> Measurement:
    """Play a conversation of this many turns, then siblings of another one, then edits of their prefix.

    Raises:
        ServerFailed: the engine reports no cache.
        ServingError: the engine failed, or the turns do not fit the model's context.
    """
    model_config, cache = deployment.model_config, cache_of(deployment)
    parts: dict[str, list[CacheRequest]] = {"turn": [], "sibling": [], "edit": []}

    def write(row: LedgerRow) -> None:
        part = parts.get(row.labels.get("part", ""))
        if part is not None and row.usage is not None:
            name = f"{row.labels['part']} {len(part) + 1}"
            part.append(CacheRequest(name, row.usage.prompt, row.cacheable or 0, row.usage.cached))
            sent = sum(map(len, parts.values()))
            most = turns + SIBLINGS + len(EDITS)
            status(f"{sent} of {most} requests, the last with {row.usage.cached} tokens cached")

    counted = await read_counters(deployment.endpoint)
    async with deployment.client(write) as model:
        await _converse(model, "turn", _opening(model, "0", secrets.token_hex(4)), turns)
        nonce = secrets.token_hex(4)
        family = [_opening(model, str(number), nonce) for number in range(SIBLINGS)]
        prefix = await model.warm("actor", family[0], NOTE_TOOLS, {})
        await run_together(lambda opening: _converse(model, "sibling", opening, 1), family, SIBLINGS)
        for share in EDITS:
            expected = await _edit(model, cache, family[0], share)
            parts["edit"][-1] = msgspec.structs.replace(parts["edit"][-1], expected=expected)
    hits = (await read_counters(deployment.endpoint) - counted).cached > 0
    requests = [request for part in parts.values() for request in part]
    prompt, expected, reported = (
        sum(getattr(each, name) for each in requests) for name in ("prompt", "expected", "reported")
    )
    share, target = reported / expected if expected else 0.0, CACHE_TARGETS[model_config.cache]
    found = Measurement(
        describe_cache(model_config, cache),
        figures=[MeasuredFigure("share of the maximum", share, target, form=".2%")],
        tables=[MeasuredTable("requests", [*requests, CacheRequest("all", prompt, expected, reported)])],
        facts={"model": model_config.name, "cache": cache, "prefix": prefix},
        notes=[f"(siblings share a prefix of {prefix} tokens, which was sent once before them)"],
    )
    changes = advice(model_config, cache, hits, reported > 0)
    if not found.met:
        changes = changes or [OTHERS]
    found.notes += [f"To change: {line}" for line in changes]
    found.facts["advice"] = changes
    return found


def _opening(model: Model, name: str, nonce: str) -> Messages:
    """Write first messages of known lengths; `nonce` separates them from all earlier requests."""
    system = text_of(model, nonce, min(SYSTEM_TOKENS, model.model_config.context // 4))
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": text_of(model, name, REPLY_TOKENS)},
    ]


async def _edit(model: Model, cache: CacheConfig, opening: Messages, share: float) -> int:
    """Send a prefix with an edit; return the most of it that the cache can provide."""
    system, user = opening
    place = int(share * len(system["content"]))
    text = f"{system['content'][:place]} An edit. {system['content'][place:]}"
    edited = [{**system, "content": text}, user]
    before, after = (model.shared_prefix("actor", each, NOTE_TOOLS) for each in (opening, edited))
    await model.warm("actor", edited, NOTE_TOOLS, {"role": "probe", "part": "edit"})
    return cache.kept_by_edit(len(before), len(common_prefix(before, after)))


async def _converse(model: Model, part: str, opening: Messages, turns: int) -> None:
    labels = {"role": "probe", "part": part}
    with closing(model.converse("actor", opening, NOTE_TOOLS, labels)) as talk:
        for number in range(turns):
            if number:
                talk.tell(text_of(model, "another", REPLY_TOKENS))
            await talk.ask()
