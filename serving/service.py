"""A model in service: its server started or found, its requests metered, its accounts checked."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from serving.cards import ModelCard, prepare
from serving.endpoint import Endpoint, attach
from serving.engine import Engine, RetryPolicy, wait_until_ready
from serving.errors import InvalidCard, ServerFailed
from serving.meter import LedgerRow, Meter
from serving.metrics import Counters, read_counters
from serving.model import Model
from serving.server import VllmServer
from serving.tokens import ChatTokenizer
from serving.usage import Prices, Usage

Say = Callable[[str], None]

READINESS = {"phase": "readiness"}
"""Labels of the request that shows an engine to be ready."""


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach or start an engine.

    Attributes:
        url: a running server to attach to (`http://HOST:PORT/v1`, `unix:/path`); `None` starts one.
        api_key_env: environment variable with the running server's key.
        port: port of 127.0.0.1 for a started server; `None` for a Unix socket.
        start_timeout_s: longest wait for a started server.
        request_timeout_s: longest wait for one answer.
        spending_cap_usd: hard limit of what may be spent at the price list; `None` for none.
    """

    url: str | None = None
    api_key_env: str | None = None
    port: int | None = None
    start_timeout_s: float = 900.0
    request_timeout_s: float = 1800.0
    spending_cap_usd: float | None = None


class Balance(msgspec.Struct, frozen=True):
    """The ledger's sums of this service beside the engine's own counters.

    Attributes:
        unreported: tries of which the engine reported no usage (it may have counted tokens for them).
        exact: whether both must agree: our server, never restarted, no unreported try.
    """

    ledger: Counters
    engine: Counters
    unreported: int
    exact: bool

    @property
    def agrees(self) -> bool:
        """Whether both say the same, to the token."""
        return self.ledger == self.engine


class Service:
    """One card's engine for as long as it is needed. Made by `serve_model`."""

    def __init__(
        self, card: ModelCard, meter: Meter, server: VllmServer | None, say: Say, waiting: Say
    ) -> None:
        self.card = card
        self.meter = meter
        self.model: Model
        self.server = server
        self._say = say
        self._waiting = waiting
        self._restart: asyncio.Task[float] | None = None
        self._counted_before = Counters(0, 0, 0)

    async def recover(self, since: float) -> bool:
        """Start our server again if it died, once. See `serving.engine.Recover`.

        Raises:
            ServerFailed: it did not start again.
        """
        if self.server is None:
            return False
        if self._restart is None and not await self.server.endpoint.healthy():
            # Another request may have come first while this one asked.
            self._restart = self._restart or asyncio.create_task(self._start_again(self.server))
        # A task of the service's own: the request that found the server dead may run out of its time.
        return self._restart is not None and await asyncio.shield(self._restart) > since

    async def close(self) -> None:
        """Give up a restart that goes on."""
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.gather(self._restart, return_exceptions=True)

    async def _start_again(self, server: VllmServer) -> float:
        """Restart the server; tells when it was ready."""
        self._say(f"the engine died ({server.failure().splitlines()[0]}); starting it again")
        await server.restart(
            lambda seconds, line: self._waiting(f"starting vLLM again, {seconds:.0f} s: {line}")
        )
        return time.monotonic()

    async def balance(self) -> Balance | None:
        """Compare the ledger with the engine's counters; `None` where the engine shows none.

        Of an engine that others use too, or that was restarted, the counters say nothing about us.
        """
        if self.card.hosted:
            return None
        try:
            now = await read_counters(self.model.engine.endpoint)
        except ServerFailed:
            return None
        total = self.meter.total
        return Balance(
            ledger=Counters(total.prompt, total.cached, total.completion),
            engine=now - self._counted_before,
            unreported=self.meter.unreported,
            exact=self.server is not None and self._restart is None and self.meter.unreported == 0,
        )

    async def open(self, engine: Engine, tokenizer: ChatTokenizer | None) -> None:
        """Make the model usable through `engine`. Raises `ServerFailed`."""
        self.model = Model(self.card, engine, tokenizer)
        if not self.card.hosted:
            self._counted_before = await read_counters(engine.endpoint)
            await wait_until_ready(engine, READINESS)


@asynccontextmanager
async def serve_model(
    card: ModelCard,
    options: ServiceOptions,
    *,
    write_row: Callable[[LedgerRow], None],
    log: Path,
    prices: Prices | None = None,
    spent_before: Usage | None = None,
    say: Say = lambda line: None,
    waiting: Say = lambda line: None,
) -> AsyncIterator[Service]:
    """Bring a model into service, and end what was started when the context ends, however it ends.

    Args:
        write_row: gets every ledger row.
        log: file for the server's output.
        prices: price list other than the card's.
        spent_before: tokens that count towards the spending cap already.
        say: called with lines about what happens.
        waiting: called about once a second with a line about what is waited for.

    Raises:
        InvalidCard, ServerFailed: see `serving.errors`.
    """
    meter = Meter(write_row, prices or card.prices, options.spending_cap_usd, spent_before)
    server: VllmServer | None = None
    tokenizer: ChatTokenizer | None = None
    folder = None if card.hosted else prepare(card, waiting)
    if folder is not None and card.route == "tokens":
        tokenizer = ChatTokenizer(folder, card.revision)
    if card.hosted or options.url is not None:
        endpoint = _running(card, options)
    else:
        assert folder is not None
        server = VllmServer(card, folder, log, port=options.port, start_timeout_s=options.start_timeout_s)
        endpoint = server.endpoint
    service = Service(card, meter, server, say, waiting)
    retry = RetryPolicy(timeout_s=options.request_timeout_s)
    engine = Engine(endpoint, card.name, meter, retry, service.recover)
    try:
        if server is not None:
            say(f"starting vLLM with {card.name} (log: {log})")
            await server.start(lambda seconds, line: waiting(f"starting vLLM, {seconds:.0f} s: {line}"))
        elif not card.hosted:
            await attach(endpoint, card.name)
        await service.open(engine, tokenizer)
        yield service
    finally:
        try:
            await engine.close()
            await service.close()
        finally:
            if server is not None:
                await server.stop(grace_s=2.0)


def _running(card: ModelCard, options: ServiceOptions) -> Endpoint:
    name = options.api_key_env or card.api_key_env
    key = os.environ.get(name) if name else None
    if name and not key:
        raise InvalidCard(f"model {card.name!r}: environment variable {name} with its API key is not set")
    if options.url is not None:
        return Endpoint.parse(options.url, api_key=key)
    assert card.base_url is not None
    return Endpoint(card.base_url, api_key=key)
