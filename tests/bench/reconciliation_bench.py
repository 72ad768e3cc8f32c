"""Whether ledger and engine agree, whatever happens to requests: `python -m tests.bench reconciliation`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from serving.deployment import Deployment
from serving.engine.cache_config import blocks_of
from serving.engine.client import Engine, RetryPolicy
from serving.engine.metrics import read_metrics
from serving.errors import ServerFailed
from serving.meter import LedgerRow
from serving.model_config import ModelConfig
from serving.reconciliation import Reconciliation
from serving.usage import Counters, Usage
from speedrunner.bench.engine import completions_api, open_engine, with_flags
from speedrunner.bench.measurement import Figure, Measurement, Table
from speedrunner.config.console import Status
from speedrunner.config.schema import Config
from speedrunner.results.ledger import token_line
from tests.bench.traffic import CALM, ROUGH, TIMEOUTS_S, Traffic

CONTEXT, CACHED_CONTEXTS, SEATS, QUEUE = 2048, 3, 16, 14
"""Of a server of our own: short contexts, of which so many fit into its cache, so that it preempts; requests
that run and that wait at the same time, so that it turns some away."""

IDLE_LIMIT_S = 120.0

ACTIVE = ("num_requests_running", "num_requests_waiting")
SUMS = (
    "request_success_total",
    "request_prompt_tokens_sum",
    "request_prefill_kv_computed_tokens_sum",
    "request_generation_tokens_sum",
    "num_preemptions_total",
)
"""What the engine counts of requests when it has finished them (of those that were cut off, nothing), and how
often it stopped one for want of blocks."""


class Finished(msgspec.Struct, frozen=True):
    """Requests that came to their end, and their tokens."""

    requests: int
    tokens: Counters


async def measure_reconciliation(
    model_config: ModelConfig, config: Config, requests: int, in_flight: int, status: Status
) -> Measurement:
    """As `compare_reconciliations`, with the model config's engine; one of our own is given a small cache
    and a short queue.

    Raises `InvalidConfig` for a model config of an API other than `completions`.
    """
    model_config = (
        completions_api(model_config) if config.serving.url else narrow(completions_api(model_config))
    )
    async with open_engine(model_config, config, status) as deployment:
        return await compare_reconciliations(deployment, requests, in_flight, status)


def narrow(model_config: ModelConfig) -> ModelConfig:
    """The model config, served so that requests get into each other's way."""
    unit = model_config.server.flags.get("block-size", 16)
    assert isinstance(unit, int)
    context = min(model_config.context, max(CONTEXT, 3 * unit))
    blocks = CACHED_CONTEXTS * blocks_of(context, unit, hybrid=model_config.cache == "hybrid")
    flags = {"num_gpu_blocks_override": blocks, "max_num_seqs": SEATS, "max_num_queued_reqs": QUEUE}
    return with_flags(msgspec.structs.replace(model_config, context=context), **flags)


async def compare_reconciliations(
    deployment: Deployment, requests: int, in_flight: int, status: Status
) -> Measurement:
    """Send requests of every fate, and compare what was written down with what the engine counted.

    Nothing is cut off in the first half of them.

    Raises:
        ServerFailed: the engine did not come to rest afterwards, or shows no counters.
        ServingError: it failed in a way that was not asked for.
    """
    rows: list[LedgerRow] = []
    await _rest(deployment)
    before = (await read_metrics(deployment.endpoint)).sums(*SUMS)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(deployment.client(rows.append, admission=False))
        impatient = []
        for timeout_s in TIMEOUTS_S:
            retry = RetryPolicy(tries=3, first_wait_s=0.05, timeout_s=timeout_s)
            impatient.append(
                Engine(deployment.endpoint, deployment.model_config.name, model.engine.meter, retry)
            )
            stack.push_async_callback(impatient[-1].close)
        traffic = Traffic(model, impatient, requests, status)
        await traffic.send(CALM, requests - requests // 2, in_flight)
        await _rest(deployment)
        calm = await deployment.reconciliation()
        if calm is not None:
            traffic.found = f"the first half {'agrees' if calm.agrees else 'DOES NOT AGREE'}; "
        await traffic.send(ROUGH, requests // 2, in_flight)
    await _rest(deployment)
    after = (await read_metrics(deployment.endpoint)).sums(*SUMS)
    reconciliation = await deployment.reconciliation()
    if reconciliation is None or calm is None:
        raise ServerFailed(f"the engine at {deployment.endpoint} shows no counters")
    grown = (int(after.get(name, 0) - before.get(name, 0)) for name in SUMS)
    finished, prompt, computed, generated, preemptions = grown
    by_engine = Finished(finished, Counters(prompt, prompt - computed, generated))
    return _measurement(requests, rows, by_engine, calm, reconciliation, preemptions)


def _measurement(
    requests: int,
    rows: list[LedgerRow],
    by_engine: Finished,
    calm: Reconciliation,
    reconciliation: Reconciliation,
    preemptions: int,
) -> Measurement:
    statuses = dict(sorted(Counter(row.status for row in rows).items()))
    retries = sum(row.retry > 0 for row in rows)
    answered = [row.usage for row in rows if row.usage is not None and row.usage != Usage()]
    by_ledger = Finished(len(answered), Counters.of(sum(answered, Usage())))
    sums = [
        _sums("finished, ledger", by_ledger.tokens, by_ledger.requests),
        _sums("finished, engine", by_engine.tokens, by_engine.requests),
        _sums("all, ledger", reconciliation.ledger),
        _sums("all, engine", reconciliation.engine),
        _sums("cut off (difference)", reconciliation.residual),
        _sums("cut off, at most", reconciliation.at_most),
        _sums("first half (difference)", calm.residual),
    ]
    agree = {
        "the first half, to the token": calm.residual == Counters(),
        "finished requests, to the token": finished_agree(by_ledger, by_engine, reconciliation),
        "all, within the bound of those that were cut off": reconciliation.agrees,
    }
    wrong = [comparison for comparison, agrees in agree.items() if not agrees]
    notes = [f"DO NOT AGREE: {comparison}" for comparison in wrong] or ["Ledger and engine agree."]
    if not reconciliation.ours:
        notes.append("(the server is not ours: what others sent to it meanwhile is counted too)")
    tries = ", ".join(f"{n} {status}" for status, n in statuses.items())
    return Measurement(
        f"{reconciliation.model}: {requests} requests; tries: {tries}; {retries} retries; "
        f"{preemptions} preemptions",
        figures=[Figure(f"disagreements in {len(agree)} comparisons", len(wrong), at_most=0)],
        tables=[Table("roles", _by_role(rows)), Table("sums", sums)],
        facts={
            "model": reconciliation.model,
            "requests": requests,
            "statuses": statuses,
            "retries": retries,
            "preemptions": preemptions,
            "wrong": wrong,
            "ours": reconciliation.ours,
        },
        notes=notes,
    )


def _by_role(rows: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    """Rows of each role. Tokens of those whose answer was not used are in their classes and `wasted` too."""
    found = []
    for role in sorted({row.labels["role"] for row in rows}):
        line = token_line(row for row in rows if row.labels["role"] == role)
        tries = {"role": role, "tries": line.requests, "unreported": line.unreported}
        found.append({**tries, **msgspec.structs.asdict(line.tokens), "wasted": line.wasted.total})
    return found


def _sums(tokens: str, counted: Counters, requests: int | None = None) -> dict[str, Any]:
    classes = msgspec.structs.asdict(counted)
    return {"tokens": tokens, "requests": requests, **classes, "computed": counted.prompt - counted.cached}


def finished_agree(ledger: Finished, engine: Finished, reconciliation: Reconciliation) -> bool:
    """Whether finished requests agree to the token.

    What the engine alone calls finished was answered to nobody (where an answer and a disconnect cross, it
    has finished a request that the client calls cut off): as many requests as were cut off at most, and
    tokens within their bound.
    """
    crossed = engine.requests - ledger.requests
    if crossed == 0:
        return engine == ledger
    finished = msgspec.structs.replace(reconciliation, ledger=ledger.tokens, engine=engine.tokens)
    return 0 < crossed <= reconciliation.unreported and finished.agrees


async def _rest(deployment: Deployment) -> None:
    """Wait until the engine has dropped what nobody waits for any more. Raises `ServerFailed`."""
    until = time.monotonic() + IDLE_LIMIT_S
    while any((await read_metrics(deployment.endpoint)).sums(*ACTIVE).values()):
        if time.monotonic() > until:
            raise ServerFailed(f"the engine at {deployment.endpoint} still works: does somebody else use it?")
        await asyncio.sleep(0.1)
