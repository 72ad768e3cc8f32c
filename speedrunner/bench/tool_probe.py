"""The validity of an engine's tool calls: `speedrunner bench probe tools`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from serving.engine.client import run_together
from serving.meter import Spending
from serving.model import Model
from serving.model_config import ModelConfig, Role
from serving.probes.tool_battery import ProbeAnswer, ToolProbe, answer_probe, battery
from speedrunner.bench.engine import open_engine
from speedrunner.bench.measurement import Figure, MeasuredTable, Measurement
from speedrunner.config.schema import Config
from speedrunner.plain.console import Status

PROBLEMS_SHOWN = 5


@dataclass(frozen=True)
class Counts:
    """Calls of one kind of probe by validity."""

    probe: str
    valid: int
    invalid: int
    truncated: int

    @classmethod
    def of(cls, kind: str, answers: Sequence[ProbeAnswer]) -> Counts:
        """Count answers."""
        found = Counter(answer.validity for answer in answers)
        return cls(kind, found["valid"], found["invalid"], found["truncated"])


async def measure_tools(
    model_config: ModelConfig, config: Config, count: int, in_flight: int, status: Status
) -> Measurement:
    """Send the probes to the model's engine. Raises as `probe_tools`; `ServerFailed` if it cannot be used."""
    async with open_engine(model_config, config, status) as deployment:
        spending = Spending(config.serving.spending_cap_usd)
        async with deployment.client(lambda row: None, spending=spending) as model:
            return await probe_tools(model, model_config.role("actor"), count, in_flight, status)


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
        found = await answer_probe(model, with_room(role, probe), probe)
        sent += 1
        not_valid += found.validity != "valid"
        status(f"{sent} of {count} probes, {not_valid} of them not valid")
        return found

    probes = list(itertools.islice(itertools.cycle(battery()), count))
    answers = await run_together(send, probes, in_flight)
    kinds = [Counts.of(probe.kind, [each for each in answers if each.probe is probe]) for probe in battery()]
    total = Counts.of("all", answers)
    problems = [f"{each.probe.kind}: {each.problem}" for each in answers if each.problem is not None]
    shown = problems[:PROBLEMS_SHOWN]
    empty = sum(each.is_empty for each in answers)
    most = 0 if model_config.api == "completions" else None
    thought = f"{role.thinking_tokens} tokens of reasoning" if role.thinking_tokens else "no reasoning"
    return Measurement(
        f"{model_config.name}: {len(answers)} probes on the {model_config.api} API, {in_flight} in "
        f"flight, {thought}",
        figures=[
            Figure("calls invalid", total.invalid, at_most=most),
            Figure("calls truncated", total.truncated, at_most=most),
            Figure("answers that ended at once or inside a thought", empty, at_most=most),
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


def with_room(role: Role, probe: ToolProbe) -> Role:
    """Return the role with strings as long as the probe needs."""
    return msgspec.structs.replace(role, string_tokens=max(role.string_tokens, probe.string_tokens))
