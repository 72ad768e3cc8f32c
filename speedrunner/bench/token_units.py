"""What `speedrunner bench tokens` plays: batches of equal requests, with the engine's use of the machine.

A unit sends batches of N requests at once, one after another, for at least `UNIT_S`. There are three kinds:

- `uncached`: random prompts of L tokens with a fresh `cache_salt`, and one output token;
- `cached`: the same prompts again, which the prefix cache has up to their last block, and one output token;
- `output`: the same prompts again, and `OUTPUT_TOKENS` output tokens.

The engine's own counters confirm the tokens of each unit. GPU seconds are the seconds in which at least one
request is in flight, times the number of GPUs. Without a GPU, they are the CPU seconds of the server's
processes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Literal, NamedTuple

import msgspec

from serving.conversation import sampling
from serving.deployment import Deployment
from serving.engine.client import Prompt, run_together
from serving.engine.gpus import Nvml, read_gpus
from serving.engine.metrics import Metrics, read_metrics
from serving.engine.server_processes import cpu_seconds, find_server_gpus, server_processes
from serving.errors import ServerFailed
from serving.model import Model
from serving.usage import Counters, Usage
from speedrunner.bench.engine import cache_of
from speedrunner.config.schema import InvalidConfig

UNIT_S = 1.0
"""Least seconds of a unit: CPU time is counted in steps of 10 ms."""

OUTPUT_TOKENS = 64
EMPTY = 16
"""Prompt tokens of requests that show the constant of a request."""

ORDINARY = range(300, 1300)
"""Token ids that are parts of words in every supported vocabulary."""

Kind = Literal["uncached", "cached", "output"]


class Cell(NamedTuple):
    """Prompt tokens of a request, and requests at the same time."""

    context: int
    in_flight: int


class TokenUnit(msgspec.Struct, frozen=True):
    """One measured unit; tokens, seconds and joules are totals.

    Attributes:
        seconds: GPU or CPU seconds.
        joules: energy of the GPUs; `None`: not measured.
        disturbed: why it must not be used; empty if nothing disturbed it.
    """

    context: int
    in_flight: int
    kind: Kind
    requests: int
    uncached: int
    cached: int
    output: int
    seconds: float
    joules: float | None
    disturbed: str

    @property
    def attention(self) -> float:
        """Return its output tokens times their mean context in thousands of tokens."""
        return self.requests * Usage(self.context, 0, self.output // self.requests).attention


class Spent(NamedTuple):
    """What some work of the engine cost.

    Attributes:
        used: its tokens.
        seconds: GPU or CPU seconds.
        joules: energy of the GPUs; `None`: not measured.
        disturbed: what else the engine or its GPUs did meanwhile; empty if nothing is known.
    """

    used: Usage
    seconds: float
    joules: float | None
    disturbed: str


def plan_cells(
    deployment: Deployment, contexts: Sequence[int], levels: Sequence[int]
) -> tuple[list[Cell], list[str]]:
    """Return the cells, for each level also one with `EMPTY` prompts, and notes on what was capped.

    Raises `InvalidConfig` if the server has no prefix cache, or it keeps nothing of the shortest prompts.
    """
    model_config, cache = deployment.model_config, cache_of(deployment)
    if not cache.enable_prefix_caching:
        raise InvalidConfig(f"the server of {model_config.name!r} has no prefix cache: no token is cached")
    if min(contexts) <= cache.match_unit:
        raise InvalidConfig(
            f"--contexts {min(contexts)}: the cache keeps multiples of {cache.match_unit} tokens, without"
            " the last token of a prompt: use longer prompts"
        )
    replicas, most = len(deployment.replicas), model_config.context - OUTPUT_TOKENS
    sequences = model_config.server.flags.get("max-num-seqs")
    taken = sequences * replicas if isinstance(sequences, int) else max(levels)
    cells, notes = set[Cell](), []
    if max(contexts) > most:
        notes.append(f"Longer prompts than {most} tokens do not fit the model's context: {most} instead.")
    for context in sorted({min(each, most) for each in contexts}):
        room = min(taken, replicas * cache.conversations(context + OUTPUT_TOKENS))
        if room < max(levels):
            notes.append(f"Prompts of {context} tokens: the server takes at most {room} in flight.")
        for level in {min(level, room) for level in levels} - {0}:
            cells |= {Cell(context, level), Cell(EMPTY, level)}
    return sorted(cells), notes


class TokenMeter:
    """Measures units on one engine.

    Attributes:
        why_no_joules: why energy is not measured; empty if it is.

    Raises `ServerFailed` if the server's processes cannot be found.
    """

    def __init__(self, deployment: Deployment, model: Model) -> None:
        config = deployment.model_config
        self._endpoint, self._model = deployment.endpoint, model
        self._gpus = config.all_gpus
        report = read_gpus()
        self._nvml, self._random, self._salt = Nvml(report.failure), Random(), ""
        self._processes = server_processes(deployment.endpoint)
        if not self._processes:
            raise ServerFailed(
                f"the processes of the server at {deployment.endpoint} cannot be found, and so neither its"
                " hardware nor its CPU time: start it on this machine, as this user, with a Unix socket"
                " (--uds PATH)"
            )
        usable = [gpu.uuid for gpu in report.usable] if self._gpus else []
        self._uuids = find_server_gpus(self._nvml, self._processes, usable, self._gpus)
        reason = self._nvml.failure or "the model's GPUs do not report them"
        self.why_no_joules = reason if self._joules() is None else ""

    async def measure(self, cell: Cell) -> list[TokenUnit]:
        """Measure each kind of unit: prompts are computed first, then cached. Raises `ServingError`."""
        prompts = [Prompt(self._random.choices(ORDINARY, k=cell.context)) for _ in range(cell.in_flight)]
        for prompt in prompts:
            prompt.json()  # encoded now, not while the clock runs
        kinds: list[Kind] = ["cached", "output"] if cell.context > EMPTY else []
        self._random.shuffle(kinds)
        return [await self._unit(cell, kind, prompts) for kind in ("uncached", *kinds)]

    async def spend(self, work: Callable[[], Awaitable[Usage]]) -> Spent:
        """Do some work, which returns its tokens, and return what it cost. Raises `ServingError`."""
        before = await read_metrics(self._endpoint)
        cpu_s, joules, began = self._cpu_s(), self._joules(), time.monotonic()
        used = await work()
        wall_s, cpu_s, now = time.monotonic() - began, self._cpu_s() - cpu_s, self._joules()
        return Spent(
            used,
            wall_s * self._gpus or cpu_s,
            None if now is None or joules is None else now - joules,
            self._find_disturbance(before, await read_metrics(self._endpoint), used),
        )

    async def _unit(self, cell: Cell, kind: Kind, prompts: Sequence[Prompt]) -> TokenUnit:
        requests = 0

        async def send_batches() -> Usage:
            nonlocal requests
            used, began = Usage(), time.monotonic()
            while time.monotonic() - began < UNIT_S:
                if kind == "uncached":
                    self._salt = secrets.token_hex(8)
                used += await self._send(prompts, OUTPUT_TOKENS if kind == "output" else 1)
                requests += len(prompts)
            return used

        used, seconds, joules, disturbed = await self.spend(send_batches)
        return TokenUnit(
            **cell._asdict(),
            kind=kind,
            requests=requests,
            uncached=used.uncached,
            cached=used.cached,
            output=used.completion,
            seconds=seconds,
            joules=joules,
            disturbed=disturbed,
        )

    async def _send(self, prompts: Sequence[Prompt], output: int) -> Usage:
        """Send all prompts at once, and return their tokens."""
        role = self._model.model_config.role("actor")
        options = {"ignore_eos": True, "cache_salt": self._salt, **sampling(role)}

        async def send(number: int) -> Usage:
            reply = await self._model.engine.complete(
                prompts[number],
                max_tokens=output,
                labels={"role": "token_cost"},
                replica=self._model.replicas[number % len(self._model.replicas)].address,
                **options,
            )
            reply.record("ok", reply.usage)
            return reply.usage

        return sum(await run_together(send, range(len(prompts)), len(prompts)), Usage())

    def _find_disturbance(self, before: Metrics, after: Metrics, used: Usage) -> str:
        """Return what else the engine did meanwhile; empty if nothing is known."""
        if after.counters() - before.counters() != Counters.of(used):
            return "other requests, or retries: the engine counted other tokens"
        if any(sum(each.sums("num_requests_running").values()) for each in (before, after)):
            return "other requests were in flight"
        if after.sums("num_preemptions_total") != before.sums("num_preemptions_total"):
            return "the engine preempted requests"
        return ""

    def _cpu_s(self) -> float:
        return sum(cpu_seconds(self._processes).values())

    def _joules(self) -> float | None:
        """Return the energy of the server's GPUs so far; `None` if one of them does not report it."""
        found = [self._nvml.read(uuid).joules for uuid in self._uuids]
        return None if None in found or not found else sum(filter(None, found))
