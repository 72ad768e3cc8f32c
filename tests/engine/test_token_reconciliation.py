"""The ledger compared with a real engine's counters, over requests of every fate."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from serving.deployment import Deployment
from serving.engine.client import Engine, RetryPolicy
from serving.engine.metrics import read_metrics
from serving.meter import LedgerRow
from serving.usage import Counters, Usage
from tests.engine.token_traffic import CALM, ROUGH, TIMEOUTS_S, Traffic

pytestmark = pytest.mark.slow

REQUESTS, IN_FLIGHT = 36, 12

ACTIVE = ("num_requests_running", "num_requests_waiting")
SUMS = (
    "request_success_total",
    "request_prompt_tokens_sum",
    "request_prefill_kv_computed_tokens_sum",
    "request_generation_tokens_sum",
)
"""The engine's sums over finished requests. Requests that were cut off do not count."""


async def rest(deployment: Deployment) -> None:
    """Wait until the engine has dropped the requests for which no one waits."""
    async with asyncio.timeout(120):
        while any((await read_metrics(deployment.endpoint)).sums(*ACTIVE).values()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def finished(deployment: Deployment) -> tuple[int, Counters]:
    """The engine's finished requests and their tokens, since its start."""
    sums = (await read_metrics(deployment.endpoint)).sums(*SUMS)
    requests, prompt, computed, generated = (int(sums.get(name, 0)) for name in SUMS)
    return requests, Counters(prompt, prompt - computed, generated)


async def test_ledger_and_engine_agree_over_requests_of_every_fate(engine_server: Any) -> None:
    deployment, rows = engine_server.deployment, list[LedgerRow]()
    await rest(deployment)
    requests, tokens = await finished(deployment)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(deployment.client(rows.append))
        impatient = []
        for timeout_s in TIMEOUTS_S:
            retry = RetryPolicy(tries=3, first_wait_s=0.05, timeout_s=timeout_s)
            name = deployment.model_config.name
            impatient.append(Engine(deployment.endpoint, name, model.engine.meter, retry))
            stack.push_async_callback(impatient[-1].close)
        traffic = Traffic(model, impatient)
        await traffic.send(CALM, REQUESTS // 2, IN_FLIGHT)
        await rest(deployment)
        calm = await deployment.reconciliation()
        await traffic.send(ROUGH, REQUESTS // 2, IN_FLIGHT)
    await rest(deployment)
    whole = await deployment.reconciliation()
    requests, tokens = (
        now - before for now, before in zip(await finished(deployment), (requests, tokens), strict=True)
    )

    # Each thing that can go wrong did.
    assert set(Counter(row.status for row in rows)) >= {"ok", "aborted", "overflow", "failed"}
    assert any(row.retry for row in rows)
    assert {row.labels["role"] for row in rows} >= {"actor", "inducer", "critic", *ROUGH} - {"answered"}
    answered = [row.usage for row in rows if row.usage is not None and row.usage != Usage()]
    assert any(usage.reasoning for usage in answered)
    # Nobody else uses the session's server: to the token where nothing was cut off, and within the bound at
    # the end.
    assert calm.residual == Counters()
    assert whole.agrees
    assert whole.unreported > 0
    # An answer that crosses with its disconnect is finished for the engine alone.
    crossed = requests - len(answered)
    difference = tokens - Counters.of(sum(answered, Usage()))
    assert 0 <= crossed <= whole.unreported
    assert difference == Counters() or crossed
    assert 0 <= difference.prompt <= whole.at_most.prompt
    assert 0 <= difference.generated <= whole.at_most.generated
