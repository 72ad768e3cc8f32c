"""A model in service: its server started or found, watched, shared by its clients, its accounts balanced."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from serving.admission import replicas_of
from serving.engine.client import Engine, Recover, RetryPolicy, wait_until_ready
from serving.engine.endpoint import BUSY_S, Endpoint
from serving.engine.gpus import Gpu
from serving.engine.metrics import Counters, read_counters, read_metrics
from serving.engine.server import VllmServer
from serving.engine.watchdog import patience_for, watched
from serving.errors import EngineDead, InvalidModelConfig, ServerFailed
from serving.gpu_check import require_gpus
from serving.hub import found, require_hub
from serving.meter import LedgerRow, Meter, Spending
from serving.model import Model
from serving.model_config import ModelConfig
from serving.model_configs import CHECKOUT
from serving.options import ServiceOptions
from serving.reconciliation import Reconciliation, TokenSums
from serving.sizing import sized
from serving.tokens.tokenizer import ChatTokenizer
from serving.usage import Prices
from serving.weights import prepare

Say = Callable[[str], None]

MOST_RESTARTS, RESTART_PERIOD_S = 3, 3600.0
"""Restarts of an engine within a period (in seconds) after which its next death ends the run. So a job of 100
hours survives a rare fault at any time. An engine that dies every few minutes would spend most of the time on
starts, which take minutes each, and play the same episodes again and again."""


class Deployment:
    """One model config's engine for as long as it is needed. Made by `deploy`.

    Attributes:
        endpoint: where it is.
        server: the server that we started; `None` for one that others run.
        replicas: the engine's, shared by all clients.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        options: ServiceOptions,
        endpoint: Endpoint,
        server: VllmServer | None = None,
        tokenizer: ChatTokenizer | None = None,
        say: Say = lambda line: None,
        waiting: Say = lambda line: None,
    ) -> None:
        self.model_config = model_config
        self.endpoint = endpoint
        self.server = server
        self.replicas = replicas_of([], admission=False)
        self._options = options
        self._tokenizer = tokenizer
        self._say = say
        self._waiting = waiting
        self._restart: asyncio.Task[float] | None = None
        self._restarts: list[float] = []
        """When each restart began, in monotonic seconds."""
        self._termination: asyncio.Future[None] | None = None
        self._engines: list[Engine] = []
        self._models: list[Model] = []
        self._reconciliations = TokenSums(model_config.name, ours=server is not None)

    async def open(self) -> None:
        """Read what the engine says of itself, before the first client. Raises `ServerFailed`."""
        if self.model_config.hosted:
            return
        told = await read_metrics(self.endpoint)
        self._reconciliations.begin(told.counters())
        admission = self._options.admission and self.model_config.api == "completions"
        self.replicas = replicas_of(told.caches(), admission=admission)

    @asynccontextmanager
    async def client(
        self,
        write_row: Callable[[LedgerRow], None],
        *,
        prices: Prices | None = None,
        spending: Spending | None = None,
        admission: bool = True,
        context: int | None = None,
    ) -> AsyncIterator[Model]:
        """A model with a ledger of its own; any number may share the engine.

        Args:
            write_row: gets every ledger row.
            prices: price list other than the model config's.
            spending: what may be spent; `None` for as much as one likes.
            admission: let its conversations be queued, where the options ask for it.
            context: the longest that its conversations may get, in tokens; `None` for what the engine takes.

        Raises:
            ServerFailed: the engine does not answer.
        """
        meter = Meter(write_row, prices or self.model_config.prices, spending)
        model_config = self.model_config
        if context is not None and context < model_config.context:
            model_config = msgspec.structs.replace(model_config, context=context)
        async with self._engine(meter, self.recover) as engine:
            model = Model(model_config, engine, self._tokenizer, self.replicas, queued=admission)
            self._models.append(model)
            try:
                yield model
            finally:
                self._models.remove(model)
                await model.close()

    @property
    def in_flight(self) -> set[int | None]:
        """The replicas on whose answers requests of any client wait; `None` stands for any of them."""
        return set().union(*(engine.in_flight for engine in self._engines))

    @property
    def queued(self) -> int:
        """Conversations that wait for room in the prefix cache."""
        return sum(replica.waiting for replica in self.replicas)

    async def recover(self, since: float) -> bool:
        """Start our server again if it died; see `engine.client.Recover`.

        Raises:
            ServerFailed: it does not start again.
            EngineDead: it has died too often; see `MOST_RESTARTS`.
        """
        if self.server is None:
            return False
        last = self._restart
        if last is None or last.done():
            # A live server may be too busy to answer at once; the watchdog decides whether it hangs.
            patience_s = BUSY_S if self.server.alive else 1.0
            # Another request may have started it meanwhile; a start that failed is not tried again.
            if (
                not await self.server.endpoint.healthy(patience_s)
                and self._restart is last
                and (last is None or last.exception() is None)
            ):
                self._count_restart(self.server)
                self._restart = asyncio.create_task(self._start_again(self.server))
        # The deployment owns the task: the request that found the server dead may run out of its time.
        return self._restart is not None and await asyncio.shield(self._restart) > since

    async def hung(self, patience_s: float) -> None:
        """End every request that waits, and our server; the first of the requests starts it again.

        Args:
            patience_s: how long the engine showed no progress, in seconds.
        """
        if self.server is not None:
            self._say(
                f"the engine hangs: requests run, and it showed no progress for {patience_s:g} s; it is"
                f" ended, and from now on it may take {2 * patience_s:g} s"
            )
            self._termination = asyncio.ensure_future(asyncio.to_thread(self.server.kill))
            await asyncio.shield(self._termination)
        for engine in self._engines:
            engine.give_up()

    async def close(self) -> None:
        """Give up a restart that goes on."""
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.gather(self._restart, return_exceptions=True)

    async def reconciliation(self, *, in_passing: bool = False) -> Reconciliation | None:
        """Compare the ledgers of all clients with the engine's counters; `None` where it shows none.

        A server that was started again has lost its counters: then since that start.

        Args:
            in_passing: requests may be in flight.
        """
        if self.model_config.hosted:
            return None
        before, restart = self._reconciliations.sums(), self._restart
        try:
            counters = await read_counters(self.endpoint)
        except ServerFailed:
            return None
        if self._restart is not restart:
            return None
        return self._reconciliations.reconciliation(counters, before, in_passing=in_passing)

    @asynccontextmanager
    async def _engine(self, meter: Meter, recover: Recover | None) -> AsyncIterator[Engine]:
        """Requests to the engine, counted and watched, once one has shown that it answers."""
        retry = RetryPolicy(timeout_s=self._options.request_timeout_s)
        engine = Engine(
            self.endpoint, self.model_config.name, meter, retry, recover, hosted=self.model_config.hosted
        )
        self._reconciliations.add(meter)
        self._engines.append(engine)
        try:
            if not self.model_config.hosted:
                await wait_until_ready(engine)
            yield engine
        finally:
            self._engines.remove(engine)
            await engine.close()

    def _count_restart(self, server: VllmServer) -> None:
        """Note a restart. Raises `EngineDead` where it would be one too many.

        A model over several nodes is not restarted: its parts on the other nodes end with it, and only the
        job's script can start them.
        """
        what, log = (line.strip() for line in server.failure().splitlines()[:2])
        if (nodes := self.model_config.nodes) > 1:
            raise EngineDead(
                f"the engine over {nodes} nodes died: {what}; {log}; the other nodes' logs are in the same"
                " folder; once the cause is fixed, the same command resumes"
            )
        now = time.monotonic()
        self._restarts = [began for began in self._restarts if now - began < RESTART_PERIOD_S]
        if len(self._restarts) >= MOST_RESTARTS:
            minutes = max(round((now - self._restarts[0]) / 60), 1)
            raise EngineDead(
                f"the engine died {len(self._restarts) + 1} times in {minutes} min, at last: {what}; {log};"
                " once the cause is fixed, the same command resumes"
            )
        self._restarts.append(now)

    async def _start_again(self, server: VllmServer) -> float:
        """Restart the server; tells when it was ready."""
        if self._termination is not None:  # its requests learn of the end before all of it is over
            await self._termination
        self._say(f"the engine died ({server.failure().splitlines()[0]}); starting it again")
        await server.stop()
        self._reconciliations.begin(
            Counters()
        )  # before the new one can be asked for anything; it counts from zero
        for replica in self.replicas:
            if replica.ideal is not None:
                replica.ideal.forget()
        for model in self._models:
            model.forget_cache()
        await server.start(
            lambda seconds, phase: self._waiting(f"starting vLLM again, {seconds:.0f} s: {phase}")
        )
        meter = Meter(lambda row: None, self.model_config.prices)
        async with self._engine(meter, None):
            self._reconciliations.leave_out(meter.total)
        return time.monotonic()


@asynccontextmanager
async def deploy(
    model_config: ModelConfig,
    options: ServiceOptions,
    *,
    log: Path,
    gpus: Sequence[Gpu] | None = None,
    say: Say = lambda line: None,
    waiting: Say = lambda line: None,
) -> AsyncIterator[Deployment]:
    """Bring a model into service, and end what was started when the context ends, however it ends.

    Args:
        log: file for the server's output.
        gpus: the GPUs for the server, as `server_gpus` returns them; by default the first visible ones.
        say: called with lines about what happens.
        waiting: called about once a second with a line about what is waited for.

    Raises:
        InvalidModelConfig, ServerFailed: see `serving.errors`.
    """
    endpoint = running_endpoint(model_config, options)
    if gpus is None:
        (gpus,) = await server_gpus([(model_config, options)], say)
    folder = None if model_config.hosted else prepare(model_config, waiting)
    tokenizer = (
        ChatTokenizer(folder, model_config.revision) if folder and model_config.api == "completions" else None
    )
    async with AsyncExitStack() as stack:
        server: VllmServer | None = None
        model_config = await sized(model_config, endpoint, gpus, say)
        if endpoint is None:
            assert folder is not None
            if model_config.id is not None and found(model_config.id, model_config.revision) is None:
                require_hub(model_config.id, model_config.revision)
            timeout_s = options.start_timeout_s
            server = VllmServer(
                model_config, folder, log, port=options.port, gpus=gpus, start_timeout_s=timeout_s
            )
            endpoint = server.endpoint
            stack.push_async_callback(server.stop, grace_s=2.0)
            say(f"starting vLLM with {model_config.name} (log: {log})")
            await server.start(lambda seconds, phase: waiting(f"starting vLLM, {seconds:.0f} s: {phase}"))
        deployment = Deployment(model_config, options, endpoint, server, tokenizer, say, waiting)
        stack.push_async_callback(deployment.close)
        if not model_config.hosted:
            patience_s = options.hang_timeout_s or patience_for(
                model_config.context, on_gpu=model_config.gpus > 0
            )
            await stack.enter_async_context(
                watched(endpoint, patience_s, lambda: deployment.in_flight, deployment.hung)
            )
        await deployment.open()
        yield deployment


async def server_gpus(
    services: Sequence[tuple[ModelConfig, ServiceOptions]], say: Say = lambda line: None
) -> list[list[Gpu]]:
    """Check the GPUs for models that are in service at the same time, and divide them among their servers.

    A model whose server runs already gets none.

    Args:
        say: called with a line for each warning.

    Raises:
        InvalidModelConfig, ServerFailed: a server could not start, or a running one's address or key is
        unusable.
    """
    started = [running_endpoint(*service) is None for service in services]
    model_configs = [
        model_config for (model_config, _), is_ours in zip(services, started, strict=True) if is_ours
    ]
    divided = iter(await asyncio.to_thread(require_gpus, model_configs, say))
    return [next(divided) if is_ours else [] for is_ours in started]


def server_log(model_config: ModelConfig) -> Path:
    """The file for the output of a server that no run starts."""
    name = re.sub(r"[^\w.-]+", "_", model_config.name)
    return CHECKOUT / ".cache" / "servers" / f"{name}-{os.getpid()}.log"


def running_endpoint(model_config: ModelConfig, options: ServiceOptions) -> Endpoint | None:
    """Where a server runs that need not be started; `None` where one must be. Nothing is sent.

    Raises:
        InvalidModelConfig, ServerFailed: its address or its API key is none, or the key is missing.
    """
    if options.url is not None:
        return Endpoint.parse(options.url, api_key=_key(model_config, options))
    if model_config.base_url is not None:
        return Endpoint(model_config.base_url.rstrip("/"), api_key=_key(model_config, options))
    return None


def _key(model_config: ModelConfig, options: ServiceOptions) -> str | None:
    """The API key of a server that runs, from its file or from the environment."""
    name = options.api_key_env or model_config.api_key_env
    if options.api_key_file is not None:
        where = f"the key file {options.api_key_file}"
        try:
            key = Path(options.api_key_file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ServerFailed(f"{where} cannot be read: {reason}") from None
    elif name is not None:
        where = f"environment variable {name}"
        key = os.environ.get(name, "").strip()
        if not key:
            raise InvalidModelConfig(f"model {model_config.name!r}: {where} with its API key is not set")
    elif model_config.hosted and model_config.api == "responses":
        raise InvalidModelConfig(
            f"model {model_config.name!r}: `api: responses` of a hosted model needs an API key:"
            " name the environment variable that holds it in the model config's api_key_env"
        )
    else:
        return None
    if not re.fullmatch("[!-~]+", key):
        raise ServerFailed(f"{where} holds no API key: a key is one word of printable ASCII characters")
    return key
