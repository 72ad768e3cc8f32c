"""A deployed model: its server is started or found, watched, shared by clients, and its tokens reconciled."""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from serving.admission import replicas_of
from serving.engine.client import Engine, RetryPolicy, wait_until_ready
from serving.engine.endpoint import BUSY_S, Endpoint, attach
from serving.engine.gpus import Gpu
from serving.engine.metrics import PATIENCE_S, read_counters, read_metrics, watch
from serving.engine.server import VllmServer
from serving.errors import ServerDied, ServerFailed
from serving.gpu_check import require_gpus
from serving.meter import LedgerRow, Meter, Reconciliation, Spending
from serving.model import Model
from serving.model_config import ModelConfig
from serving.model_configs import CHECKOUT
from serving.model_files import check_files
from serving.options import ServiceOptions, running_endpoint
from serving.sizing import answer_tokens, size_model
from serving.tokens.tokenizer import ChatTokenizer
from serving.usage import Counters, Prices, Usage
from serving.weights import find_folder, prepare, require_hub

Say = Callable[[str], None]

OUTAGE_NEWS_S = 60.0
"""Least seconds between two lines about an engine that does not answer."""


class Deployment:
    """One model config's engine for as long as it is needed. Made by `deploy`.

    Attributes:
        server: the server that we started; `None` for one that others run.
        replicas: the engine's replicas, shared by all clients.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        options: ServiceOptions,
        endpoint: Endpoint,
        server: VllmServer | None = None,
        tokenizer: ChatTokenizer | None = None,
        say: Say = lambda line: None,
    ) -> None:
        self.model_config = model_config
        self.endpoint = endpoint
        self.server = server
        self.replicas = replicas_of([], admission=False)
        self._options = options
        self._tokenizer = tokenizer
        self._say = say
        self._killing: asyncio.Future[None] | None = None
        self._outage_news = -math.inf
        """Monotonic time of the last line about an engine that does not answer."""
        self._engines: list[Engine] = []
        self._meters: list[Meter] = []
        self._since, self._counters = time.time(), Counters()
        """Start of the counts, and the engine's counters then."""

    async def open(self) -> None:
        """Read the engine's metrics, before the first client. Raises `ServerFailed`."""
        if self.model_config.hosted:
            return
        metrics = await read_metrics(self.endpoint)
        self._since, self._counters = time.time(), metrics.counters()
        admission = self._options.admission and self.model_config.api == "completions"
        self.replicas = replicas_of(metrics.caches(), admission=admission)

    @asynccontextmanager
    async def client(
        self,
        write_row: Callable[[LedgerRow], None],
        *,
        prices: Prices | None = None,
        spending: Spending | None = None,
        context: int | None = None,
    ) -> AsyncIterator[Model]:
        """Open a model with its own ledger. Any number of clients may share the engine.

        Args:
            context: limit of its conversations in tokens; `None` for the engine's own.

        Raises `ServerFailed`: the engine does not answer.
        """
        options, hosted = self._options, self.model_config.hosted
        meter = Meter(write_row, prices or self.model_config.prices, spending)
        model_config = self.model_config
        if context is not None and context < model_config.context:
            model_config = msgspec.structs.replace(model_config, context=context)
        self._meters.append(meter)
        engine = Engine(
            self.endpoint,
            self.model_config.name,
            meter,
            RetryPolicy(timeout_s=options.request_timeout_s, outage_s=options.outage_timeout_s),
            self._require_alive if self.server else None,
            hosted=hosted,
            note_outage=self._note_outage,
            say=self._say,
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(engine.close)
            self._engines.append(engine)
            stack.callback(self._engines.remove, engine)
            if not hosted:
                await wait_until_ready(engine)
            model = Model(model_config, engine, self._tokenizer, self.replicas)
            stack.push_async_callback(model.close)
            yield model

    @property
    def queued(self) -> int:
        """Number of conversations that wait for room in the prefix cache."""
        return sum(replica.waiting for replica in self.replicas)

    async def hung(self) -> None:
        """End our server, and with it all waiting requests."""
        assert self.server is not None
        self._say("the engine hangs: requests run, and it shows no progress; it is stopped")
        self._killing = asyncio.ensure_future(asyncio.to_thread(self.server.kill))
        await asyncio.shield(self._killing)

    def is_busy(self) -> bool:
        """Return whether requests of any client wait for answers."""
        return any(engine.in_flight for engine in self._engines)

    async def close(self) -> None:
        """Wait until our server has ended if it is being killed."""
        if self._killing is not None:
            await self._killing

    async def _require_alive(self) -> None:
        """See `engine.client.RequireAlive`. A server may be too busy to answer: the watchdog decides if it
        hangs."""
        assert self.server is not None
        if not self.server.alive or await self.endpoint.health(BUSY_S) not in (200, None):
            why = "; ".join(line.strip() for line in self.server.failure().splitlines()[:2])
            raise ServerDied(f"the engine died: {why}")

    async def reconciliation(self) -> Reconciliation | None:
        """Compare the ledgers of all clients with the engine's counters; `None` if it has no counters.

        No request may be in flight.
        """
        if self.model_config.hosted:
            return None
        try:
            counters = await read_counters(self.endpoint)
        except ServerFailed:
            return None
        most = sum((meter.at_most for meter in self._meters), Usage())
        return Reconciliation(
            model=self.model_config.name,
            ledger=Counters.of(sum((meter.total for meter in self._meters), Usage())),
            engine=counters - self._counters,
            unreported=sum(meter.unreported for meter in self._meters),
            at_most=Counters(most.prompt, most.prompt, most.completion),
            ours=self.server is not None,
            since=self._since,
            time=time.time(),
        )

    def _note_outage(self, failure: str) -> None:
        """Say, about once a minute for all clients, that requests wait for an engine."""
        now = time.monotonic()
        if now - self._outage_news >= OUTAGE_NEWS_S:
            self._outage_news = now
            limit = f"{self._options.outage_timeout_s:g} s (serving.outage_timeout_s)"
            self._say(
                f"no answer from the engine at {self.endpoint} ({failure}); requests wait up to {limit}"
            )


@asynccontextmanager
async def deploy(
    model_config: ModelConfig,
    options: ServiceOptions,
    *,
    log: Path,
    gpus: Sequence[Gpu] | None = None,
    say: Say = lambda line: None,
    waiting: Say = lambda line: None,
    logs_steps: bool = False,
) -> AsyncIterator[Deployment]:
    """Deploy a model. Everything that was started ends with the context, however it ends.

    Without `gpus`, the GPUs are checked and the model is sized first (`place_model`).

    Args:
        model_config: already sized for its GPUs if `gpus` is given.
        gpus: the server's GPUs, as returned by `place_model` with the model config.
        waiting: called about once a second with a line that says what the deployment waits for.
        logs_steps: whether a server that is started here logs its steps (`serving.engine.step_log`).

    Raises:
        InvalidModelConfig, ServerFailed: see `serving.errors`.
    """
    if gpus is None:
        model_config, gpus = await place_model(model_config, options, say)
    endpoint = running_endpoint(model_config, options)
    tokenizer = None
    if not model_config.hosted:
        place = prepare(model_config, waiting)
        tokenizer = check_files(model_config, place, say, starts=endpoint is None)
    if endpoint is None and (id_ := model_config.id) and find_folder(id_, model_config.revision) is None:
        require_hub(id_, model_config.revision)  # vLLM downloads the weights
    async with AsyncExitStack() as stack:
        server: VllmServer | None = None
        if endpoint is None:
            timeout_s = options.start_timeout_s
            server = VllmServer(
                model_config, log, gpus=gpus, start_timeout_s=timeout_s, logs_steps=logs_steps
            )
            if (other := model_config.server.flags.get("scheduler-cls")) is not None:
                say(f"{other} (server.flags.scheduler-cls) schedules: requests start as it decides")
            endpoint = server.endpoint
            stack.push_async_callback(server.stop, grace_s=2.0)
            say(f"starting vLLM with {model_config.name} (log: {log})")
            began = time.monotonic()
            await server.start(lambda seconds, line: waiting(f"starting vLLM, {seconds:.0f} s: {line}"))
            say(f"vLLM is ready after {time.monotonic() - began:.0f} s")
        deployment = Deployment(model_config, options, endpoint, server, tokenizer, say)
        stack.push_async_callback(deployment.close)
        if server is not None:
            patience_s = options.hang_timeout_s or PATIENCE_S
            await stack.enter_async_context(watch(endpoint, patience_s, deployment.is_busy, deployment.hung))
        await deployment.open()
        yield deployment


async def place_model(
    model_config: ModelConfig, options: ServiceOptions, say: Say = lambda line: None
) -> tuple[ModelConfig, list[Gpu]]:
    """Check the GPUs for a model or its running server, and size the model.

    Returns:
        What `deploy` takes: the model config with the context and flags for its GPUs or its running server,
        and its GPUs; none for a running server.

    Raises:
        InvalidModelConfig, ServerFailed: a server could not start, or a running one is unusable.
    """
    endpoint = running_endpoint(model_config, options)
    if model_config.hosted:
        return model_config, []
    if endpoint is None:
        gpus = await asyncio.to_thread(require_gpus, model_config, say)
        return size_model(model_config, gpus, say), gpus
    served = await attach(endpoint, model_config.name)
    if served is None or served >= model_config.context:
        return model_config, []
    if (least := answer_tokens(model_config) + 1) > served:
        raise ServerFailed(
            f"the server at {endpoint} takes {served:,} tokens, but an answer of {model_config.name!r}"
            f" may need {least:,}: start it with --max-model-len {model_config.context}, or lower"
            " model.inducer.string_tokens"
        )
    say(f"{endpoint} accepts {served:,} tokens: using that as the context, not {model_config.context:,}")
    return msgspec.structs.replace(model_config, context=served), []


def server_log(model_config: ModelConfig) -> Path:
    """Return the log file for a server that no run starts."""
    name = re.sub(r"[^\w.-]+", "_", model_config.name)
    return CHECKOUT / ".cache" / "servers" / f"{name}-{os.getpid()}.log"
