"""Whether ledger and engine agree, whatever happens to requests: `speedrunner bench accounts`."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from serving.balance import Balance
from serving.cards import ModelCard
from serving.deployment import Deployment
from serving.engine.client import Engine, RetryPolicy
from serving.engine.metrics import Counters, blocks_of
from serving.errors import ServerFailed
from serving.meter import LedgerRow
from serving.usage import Usage
from speedrunner.cli.command import AsJson, Status
from speedrunner.measure.serving import (
    Overrides,
    bench_deployment,
    bench_setup,
    carry_out_in_folder,
    metrics,
    with_flags,
)
from speedrunner.measure.traffic import CALM, ROUGH, TIMEOUTS_S, Traffic
from speedrunner.runs.setup import Setup

CONTEXT, CACHED_CONTEXTS, SEATS, QUEUE = 2048, 3, 16, 14
"""Of a server of our own: short contexts, of which so many fit into its cache, so that it preempts; requests
that run and that wait at the same time, so that it turns some away."""

IN_FLIGHT = 32
IDLE_LIMIT_S = 120.0

FINISHED = {
    "requests": "request_success_total",
    "prompt": "request_prompt_tokens_sum",
    "computed": "request_prefill_kv_computed_tokens_sum",
    "generated": "request_generation_tokens_sum",
}
"""What the engine counts of requests when it has finished them; of those that were cut off, nothing."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one role. Tokens of rows whose answer was not used are in their classes and in `wasted` too.

    Attributes:
        tries: rows of the ledger.
        unreported: those of them of which the engine reported no usage.
    """

    tries: int
    unreported: int
    cached: int
    computed: int
    reasoning: int
    action: int
    wasted: int

    @classmethod
    def of(cls, rows: Sequence[LedgerRow]) -> Account:
        """Add rows up."""
        total = _total(rows)
        wasted = _total([row for row in rows if row.wasted])
        return cls(
            tries=len(rows),
            unreported=sum(row.usage is None for row in rows),
            cached=total.cached,
            computed=total.uncached,
            reasoning=total.reasoning,
            action=total.action,
            wasted=wasted.prompt + wasted.completion,
        )


class Finished(msgspec.Struct, frozen=True):
    """Requests that came to their end, and their tokens."""

    requests: int
    prompt: int
    computed: int
    generated: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared.

    Attributes:
        requests: what was asked for; a request may be tried more than once, or be refused.
        statuses: rows of the ledger by their status.
        retries: rows that are not a request's first.
        preemptions: requests that the engine stopped for want of blocks, and computed again.
        roles: the ledger's rows, by role.
        finished: by the ledger.
        finished_by_engine: by the engine's own histograms, which know nothing of what was cut off. Where an
            answer and a disconnect cross, the engine has finished a request that the client calls cut off.
        calm_residual: what the engine counted beyond the ledger in the first half, where nothing is cut off.
        residual: what it counted beyond the ledger at the end.
        at_most: what it may have counted of tries without usage.
        agrees: whether all of it fits.
        ours: whether nobody else can have used the engine.
    """

    model: str
    requests: int
    statuses: dict[str, int]
    retries: int
    preemptions: int
    roles: dict[str, Account]
    finished: Finished
    finished_by_engine: Finished
    ledger: Counters
    engine: Counters
    calm_residual: Counters
    residual: Counters
    at_most: Counters
    agrees: bool
    ours: bool


async def measure(
    deployment: Deployment, requests: int, in_flight: int, status: Status = lambda line: None, seed: int = 0
) -> Result:
    """Send requests of every fate, and compare what was written down with what the engine counted.

    Raises:
        ServerFailed: the engine did not come to rest afterwards, or shows no counters.
        ServingError: it failed in a way that was not asked for.
    """
    rows: list[LedgerRow] = []
    await _rest(deployment)
    names = [*FINISHED.values(), "num_preemptions_total"]
    before = await metrics(deployment.endpoint, *names)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(deployment.client(rows.append, admission=False))
        impatient = []
        for timeout_s in TIMEOUTS_S:
            retry = RetryPolicy(tries=3, first_wait_s=0.05, timeout_s=timeout_s)
            impatient.append(Engine(deployment.endpoint, deployment.card.name, model.meter, retry))
            stack.push_async_callback(impatient[-1].close)
        traffic = Traffic(model, impatient, requests, seed, status)
        await traffic.send(CALM, requests - requests // 2, in_flight)
        await _rest(deployment)
        calm = await deployment.balance()
        await traffic.send(ROUGH, requests // 2, in_flight)
    await _rest(deployment)
    after = await metrics(deployment.endpoint, *names)
    balance = await deployment.balance()
    if balance is None or calm is None:
        raise ServerFailed(f"the engine at {deployment.endpoint} shows no counters")
    grown = {name: after[name] - before[name] for name in names}
    by_engine = Finished(**{field: grown[name] for field, name in FINISHED.items()})
    answered = [row for row in rows if row.usage is not None and row.usage != Usage()]
    total = _total(answered)
    by_ledger = Finished(len(answered), total.prompt, total.uncached, total.completion)
    roles = sorted({row.labels["role"] for row in rows})
    return Result(
        model=deployment.card.name,
        requests=requests,
        statuses=dict(Counter(row.status for row in rows)),
        retries=sum(row.retry > 0 for row in rows),
        preemptions=grown["num_preemptions_total"],
        roles={role: Account.of([row for row in rows if row.labels["role"] == role]) for role in roles},
        finished=by_ledger,
        finished_by_engine=by_engine,
        ledger=balance.ledger,
        engine=balance.engine,
        calm_residual=calm.residual,
        residual=balance.residual,
        at_most=balance.at_most,
        agrees=calm.residual == Counters()
        and balance.agrees
        and finished_agree(by_ledger, by_engine, balance),
        ours=balance.ours,
    )


def finished_agree(ledger: Finished, engine: Finished, balance: Balance) -> bool:
    """Whether finished requests agree to the token.

    What the engine alone calls finished was answered to nobody: as many requests as were cut off at most, and
    tokens within their bound.
    """
    crossed = engine.requests - ledger.requests
    if crossed == 0:
        return ledger == engine
    beyond = (engine.prompt - ledger.prompt, engine.computed - ledger.computed)
    return (
        0 < crossed <= balance.unreported
        and all(0 <= each <= balance.at_most.prompt for each in beyond)
        and 0 <= engine.generated - ledger.generated <= balance.at_most.generated
    )


async def _rest(deployment: Deployment) -> None:
    """Wait until the engine has dropped what nobody waits for any more. Raises `ServerFailed`."""
    until = time.monotonic() + IDLE_LIMIT_S
    while any((await metrics(deployment.endpoint, "num_requests_running", "num_requests_waiting")).values()):
        if time.monotonic() > until:
            raise ServerFailed(f"the engine at {deployment.endpoint} still works: does somebody else use it?")
        await asyncio.sleep(0.1)


def _total(rows: Sequence[LedgerRow]) -> Usage:
    return sum((row.usage for row in rows if row.usage is not None), Usage())


async def _bench(setup: Setup, requests: int, in_flight: int, status: Status) -> Result:
    card = setup.card if setup.config.serving.url else _narrow(setup.card)
    async with bench_deployment(card, setup, status) as deployment:
        return await measure(deployment, requests, in_flight, status)


def _narrow(card: ModelCard) -> ModelCard:
    """The card, served so that requests get into each other's way."""
    unit = card.server.flags.get("block-size", 16)
    assert isinstance(unit, int)
    context = min(card.context, max(CONTEXT, 3 * unit))
    blocks = CACHED_CONTEXTS * blocks_of(context, unit, hybrid=card.cache == "hybrid")
    flags = {"num_gpu_blocks_override": blocks, "max_num_seqs": SEATS, "max_num_queued_reqs": QUEUE}
    return with_flags(msgspec.structs.replace(card, context=context), **flags)


def bench_accounts(
    overrides: Overrides = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests in all.")] = 2000,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = IN_FLIGHT,
    as_json: AsJson = False,
) -> None:
    """Send requests that are answered, disconnect, time out, overflow, are preempted, refused and retried.

    Then the ledger is compared with the engine's counters: to the token after the first half of the requests,
    in which nothing is cut off, and within the bound of what is cut off at the end. A server of our own is
    given a small cache and a short queue for it; one that runs must be idle. The exit status is 1 when the
    accounts do not agree.

    Example: speedrunner bench accounts model=tiny --requests 500
    """
    setup = bench_setup(overrides)

    async def work(status: Status, folder: Path) -> Result:
        return await _bench(setup, requests, in_flight, status)

    result = carry_out_in_folder(work)
    typer.echo(json.dumps(msgspec.to_builtins(result)) if as_json else _text(result))
    if not result.agrees:
        raise typer.Exit(1)


def _text(result: Result) -> str:
    columns = ("tries", "unreported", "cached", "computed", "reasoning", "action", "wasted")
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(result.statuses.items()))
    lines = [
        f"{result.model}: {result.requests} requests; tries: {statuses}; {result.retries} retries;"
        f" {result.preemptions} preemptions",
        f"{'role':14}" + "".join(f"{name:>12}" for name in columns),
    ]
    for role, account in result.roles.items():
        lines.append(f"{role:14}" + "".join(f"{getattr(account, name):12}" for name in columns))
    lines.append(
        f"{'tokens':24}{'requests':>10}{'prompt':>12}{'cached':>12}{'computed':>12}{'generated':>12}"
    )
    for name, each in (
        ("finished, ledger", result.finished),
        ("finished, engine", result.finished_by_engine),
    ):
        lines.append(
            f"{name:24}{each.requests:10}{each.prompt:12}{each.prompt - each.computed:12}{each.computed:12}"
            f"{each.generated:12}"
        )
    for name, counters in {
        "all, ledger": result.ledger,
        "all, engine": result.engine,
        "cut off (difference)": result.residual,
        "cut off, at most": result.at_most,
    }.items():
        computed = counters.prompt - counters.cached
        numbers = (counters.prompt, counters.cached, computed, counters.generated)
        lines.append(f"{name:34}" + "".join(f"{number:12}" for number in numbers))
    calm = result.calm_residual
    differences = (calm.prompt, calm.cached, calm.prompt - calm.cached, calm.generated)
    lines.append(f"{'first half (difference)':34}" + "".join(f"{each:12}" for each in differences))
    if not result.ours:
        lines.append("(the server is not ours: what others sent to it meanwhile is counted too)")
    lines.append(f"The accounts {'agree' if result.agrees else 'DO NOT AGREE'}.")
    return "\n".join(lines)
