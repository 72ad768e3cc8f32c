"""The validity of an engine's tool calls, and the cost of the grammar: `speedrunner bench probe tools`."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

import msgspec

from serving.conversation import sampling
from serving.engine.prompt import Prompt
from serving.meter import Spending
from serving.model import Model
from serving.model_config import ModelConfig, Role
from serving.probes.tool_battery import LABELS, OpenProbe, ProbeAnswer, ToolProbe, battery
from serving.together import run_together
from speedrunner.bench.engine import open_engine
from speedrunner.bench.measurement import Figure, Measurement, Table
from speedrunner.config.console import Status
from speedrunner.config.schema import Config

ROUND = 4
"""Probes per slot in flight before the next change between constrained and free decoding."""

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


@dataclass
class Speed:
    """Output tokens of many requests, and the seconds that they took together."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_s(self) -> float | None:
        """Speed; `None` while nothing was measured."""
        return self.tokens / self.seconds if self.tokens else None

    async def time(self, requests: Awaitable[list[ProbeAnswer]]) -> list[ProbeAnswer]:
        """Wait for requests, and add their tokens and seconds."""
        began = time.monotonic()
        answers = await requests
        self.seconds += time.monotonic() - began
        self.tokens += sum(each.usage.completion for each in answers)
        return answers


async def measure_tools(
    model_config: ModelConfig, config: Config, count: int, in_flight: int, status: Status
) -> Measurement:
    """Send the probes to the model's engine. Raises as `probe_tools`; `ServerFailed` if it cannot be used."""
    async with open_engine(model_config, config, status) as deployment:
        spending = Spending(config.serving.spending_cap_usd)
        # Without admission, because the engine is measured.
        async with deployment.client(lambda row: None, spending=spending, admission=False) as model:
            return await probe_tools(model, model_config.role("actor"), count, in_flight, status)


async def probe_tools(model: Model, role: Role, count: int, in_flight: int, status: Status) -> Measurement:
    """Send `count` probes of the battery in turn, and count the valid, invalid and truncated calls.

    On the completions API, each round of them is followed by requests with the same prompts and lengths but
    without a grammar, so that other work on the machine slows both alike. The first twelve probes are not
    timed: they compile the grammars and put the prompts into the cache.

    Args:
        role: sampling and budgets; strings get more room if a probe needs it.
        in_flight: requests at the same time.

    Raises `ServingError`: the engine failed. On the chat API also if it refuses a probe.
    """
    model_config = model.model_config
    answers: list[ProbeAnswer] = []
    constrained, free = Speed(), Speed()
    sent = not_valid = 0

    async def answered(probe: OpenProbe) -> ProbeAnswer:
        nonlocal sent, not_valid
        found = await probe.answer()
        sent += 1
        not_valid += found.validity != "valid"
        status(f"{sent} of {count} probes, {not_valid} of them not valid")
        return found

    async def play(batch: list[ToolProbe], speed: Speed) -> None:
        # Prompts are rendered before the clock starts, because that is not the engine's work.
        probes = [OpenProbe(model, with_room(role, probe), probe) for probe in batch]
        answers.extend(await speed.time(run_together(answered, probes, in_flight)))

    turns = itertools.islice(itertools.cycle(battery()), count)
    await play(list(itertools.islice(turns, len(battery()))), Speed())
    while batch := list(itertools.islice(turns, ROUND * in_flight)):
        await play(batch, constrained)
        if model_config.api == "completions":
            again = answers[-len(batch) :]
            await free.time(run_together(lambda answer: _free(model, role, answer), again, in_flight))
    kinds = [Counts.of(probe.kind, [each for each in answers if each.probe is probe]) for probe in battery()]
    total = Counts.of("all", answers)
    problems = [f"{each.probe.kind}: {each.problem}" for each in answers if each.problem is not None]
    shown = problems[:PROBLEMS_SHOWN]
    most = 0 if model_config.api == "completions" else None
    fast, plain = constrained.tokens_per_s, free.tokens_per_s
    thought = f"{role.thinking_tokens} tokens of thinking" if role.thinking_tokens else "no thinking"
    return Measurement(
        f"{model_config.name}: {len(answers)} probes on the {model_config.api} API, {in_flight} in "
        f"flight, {thought}",
        figures=[
            Figure("calls invalid or truncated", total.invalid + total.truncated, at_most=most),
            Figure("output tokens/s, constrained", fast),
            Figure("output tokens/s, free (same prompts and lengths, in turn)", plain),
            Figure("constrained over free", fast / plain if fast and plain else None),
        ],
        tables=[Table("kinds", [*kinds, total])],
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


async def _free(model: Model, role: Role, answer: ProbeAnswer) -> ProbeAnswer:
    """Send a probe's prompt again, for as many tokens, without a grammar."""
    if not answer.token_ids:
        return answer
    most = len(answer.token_ids)
    reply = await model.engine.complete(
        Prompt(answer.prompt), max_tokens=most, labels=LABELS, ignore_eos=True, **sampling(role)
    )
    reply.record("ok", reply.usage)
    return msgspec.structs.replace(answer, usage=reply.usage)
