"""Requests to an OpenAI-compatible engine, with retries and one ledger row per try."""

from __future__ import annotations

import asyncio
import functools
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import msgspec

from serving.answer_limit import pause_limit
from serving.engine.endpoint import BUSY_S, Endpoint
from serving.engine.one_try import Answer, Send, TokenCompletion, TryFailed, try_once
from serving.errors import (
    ContentRefused,
    ContextOverflow,
    EngineDead,
    RequestFailed,
    RequestRefused,
    ServerDied,
    ServerFailed,
)
from serving.meter import READINESS, LedgerRow, Meter, Status
from serving.options import OUTAGE_TIMEOUT_S, REQUEST_TIMEOUT_S
from serving.usage import Usage


class Prompt:
    """Token ids and their JSON, which each turn extends by its new ids.

    So a turn of 250,000 tokens costs the client little more than one of 2,000.

    Args:
        ids: the conversation's own list. Between requests it may only grow.
    """

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self._json = bytearray()
        self._encoded = 0
        """Number of ids in `_json`."""

    def __len__(self) -> int:
        return len(self.ids)

    def json(self) -> bytearray:
        """Return the ids as JSON, without the brackets around them."""
        new = self.ids[self._encoded :]
        if new:
            if self._encoded:
                self._json += b","
            self._json += msgspec.json.encode(new)[1:-1]
            self._encoded = len(self.ids)
        return self._json


RequireAlive = Callable[[], Awaitable[None]]
"""Called when the connection to our server was lost; raises `ServerDied` if the server has died."""

Item = TypeVar("Item")
Result = TypeVar("Result")
T = TypeVar("T", bound=Answer)


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and how patiently a request is tried again.

    Attributes:
        tries: maximum number of failed tries, without those that count for `outage_s`.
        first_wait_s: wait before the first retry; doubles with each further one, up to `longest_wait_s`.
        timeout_s: longest wait for one answer; a request that exceeds it is dropped and tried again.
        outage_s: longest total wait of one request for an engine that is away, and for rate limits.
    """

    tries: int = 5
    first_wait_s: float = 0.5
    longest_wait_s: float = 20.0
    timeout_s: float = REQUEST_TIMEOUT_S
    outage_s: float = OUTAGE_TIMEOUT_S

    def wait_s(self, retry: int) -> float:
        """Return the seconds before retry number `retry` (from 1), with jitter so that episodes do not return
        at once."""
        wait_s = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(retry - 1, 30))
        return wait_s * random.uniform(0.75, 1.25)


class EngineResponse(msgspec.Struct, Generic[T], frozen=True):
    """An engine's answer and its cost.

    Attributes:
        seconds: time from sending the request to the end of the answer.
        request: id of its rows in the ledger.
    """

    answer: T
    usage: Usage
    seconds: float
    request: str
    record: Callable[..., None]
    """Writes the ledger row, once the caller knows the answer's status: `record(status, usage)`."""


class _Request(msgspec.Struct, Generic[T]):
    """One request, with what its tries so far have shown.

    Attributes:
        form: type of the answer, with the fields that it must have.
        most: upper bound of its tokens.
        cacheable: see `Engine.complete`.
        tries: number of started tries.
        started: monotonic time of the last one's start.
        failures: tries that may have cost tokens.
        outage_s: time that it has waited for an engine that is away.
    """

    send: Send
    form: type[T]
    most: Usage
    labels: dict[str, str]
    cacheable: int | None = None
    id: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))
    tries: int = 0
    started: float = 0.0
    failures: int = 0
    outage_s: float = 0.0


class Engine:
    """One engine, reached over HTTP; safe to use from many tasks at once.

    Args:
        model: the served name, sent with each request.
        retry: see `RetryPolicy`.
        require_alive: see `RequireAlive`; `None` for an engine that others run.
        hosted: whether it is a hosted service; only a vLLM server reports its health and takes seeds.
        note_outage: called with the reason at each failed try of a request that waits for the engine.
        say: called with a line at each try that times out.

    Attributes:
        cache_salt: separates the requests of token ids in the engine's prefix cache from all others; empty:
            they share it.
        note_response: called with each response to a request of token ids.
        in_flight: number of requests that wait for answers.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        meter: Meter,
        retry: RetryPolicy | None = None,
        require_alive: RequireAlive | None = None,
        hosted: bool = False,
        note_outage: Callable[[str], None] = lambda reason: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.endpoint = endpoint
        self.model = model
        self.meter = meter
        self.cache_salt = ""
        self.note_response: Callable[[EngineResponse[TokenCompletion]], None] = lambda response: None
        self._retry = retry or RetryPolicy()
        self._require_alive = require_alive
        self.hosted = hosted
        self._note_outage, self._say = note_outage, say
        self._takes_messages = False
        """Whether it has answered a request of messages."""
        self._not_before = 0.0
        self.in_flight = 0
        self._client = endpoint.client(self._retry.timeout_s)
        self._api = endpoint.base_url.removeprefix(endpoint.root)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        labels: dict[str, str],
        replica: int | None = None,
        cacheable: int | None = None,
        **options: Any,
    ) -> EngineResponse[TokenCompletion]:
        """Continue token ids; the choice has `token_ids` and `finish_reason`.

        Args:
            replica: the engine's replica that must answer; `None` lets the engine choose.
            cacheable: for the ledger; see `LedgerRow`.
            options: further fields of the request (`structured_outputs`, `temperature`, ...).

        Raises:
            ContextOverflow, RequestRefused, RequestFailed, EngineDead, SpendingCapReached: see `errors`.
        """
        if self.cache_salt:
            options["cache_salt"] = self.cache_salt
        fields = {**options, "model": self.model, "max_tokens": max_tokens, "return_token_ids": True}
        # Only the prompt's new ids are encoded; the prompt is the last field.
        content = b"".join((msgspec.json.encode(fields)[:-1], b',"prompt":[', prompt.json(), b"]}"))
        headers = {} if replica is None else {"X-data-parallel-rank": str(replica)}
        send = functools.partial(self._client.send, f"{self._api}/completions", content, headers)
        most = Usage(prompt=len(prompt), completion=max_tokens)
        request = _Request(send, TokenCompletion, most, labels, cacheable)
        response = await self._send(request)
        self.note_response(response)
        ids = response.answer.choices[0].token_ids
        if ids is None:
            response.record("failed", response.usage)
            raise RequestRefused(
                f"the engine at {self.endpoint} returns no token ids; the completions API needs a recent vLLM"
            )
        return response

    async def post(
        self,
        path: str,
        body: dict[str, Any],
        form: type[T],
        *,
        prompt_bound: int,
        max_tokens: int,
        labels: dict[str, str],
    ) -> EngineResponse[T]:
        """Continue messages.

        Args:
            body: the request without the model's name.
            prompt_bound: upper bound of the prompt's tokens, for the spending cap.
            max_tokens: upper bound of the answer's tokens, which the body states as well.

        Raises:
            ContentRefused: a provider that answers other requests refused this one.
            EngineDead: also if the engine refuses the first of these requests.
            ContextOverflow, RequestRefused, RequestFailed, SpendingCapReached: see `errors`.
        """
        content = msgspec.json.encode({**body, "model": self.model})
        send = functools.partial(self._client.send, f"{self._api}/{path}", content)
        most = Usage(prompt=prompt_bound, completion=max_tokens)
        try:
            response = await self._send(_Request(send, form, most, labels))
        except RequestRefused as refusal:
            if refusal.is_filtered or (self._takes_messages and refusal.status in (400, 422)):
                raise ContentRefused(str(refusal)) from refusal
            if not self._takes_messages:
                raise EngineDead(
                    f"the engine at {self.endpoint} refuses the first request: {refusal}; correct the model"
                    " config (`api`, `roles`), and rerun the command to resume"
                ) from refusal
            raise
        self._takes_messages = True
        return response

    async def _send(self, request: _Request[T]) -> EngineResponse[T]:
        """Try, and wait after each failure, until there is an answer or no hope for one."""
        while True:
            # A rate limit is the account's: it delays every request, and another may prolong it meanwhile.
            while (wait_s := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(wait_s)
            try:
                return await self._try(request)
            except TryFailed as error:
                failure = error
            if failure.lost and self._require_alive is not None:
                await self._require_alive()
            await self._wait_after(request, failure)

    async def _try(self, request: _Request[T]) -> EngineResponse[T]:
        """Send the request once and write the row of a failure. Raises `TryFailed`, and as `complete`."""
        request.tries += 1
        request.started = time.monotonic()
        row = functools.partial(self._record, request)
        most = request.most
        self.in_flight += 1
        try:
            with self.meter.reservation(most.prompt, most.completion):
                answer, usage = await try_once(request.send, request.form)
            if request.form is TokenCompletion and usage.prompt != most.prompt:
                counts = f"{usage.prompt} prompt tokens, but the request has {most.prompt}"
                raise TryFailed(f"the answer to another request: it counts {counts}")
            if request.form is TokenCompletion and usage.completion > most.completion:
                raise TryFailed(
                    f"the answer has {usage.completion} tokens, but at most {most.completion} may"
                )
        except TryFailed as failure:
            row(failure.status, failure.usage, failure)
            raise
        except (ContextOverflow, EngineDead, RequestRefused) as refusal:
            row("overflow" if isinstance(refusal, ContextOverflow) else "failed", Usage(), refusal)
            raise
        except asyncio.CancelledError as end:
            row("aborted", None, end)
            raise
        finally:
            self.in_flight -= 1
        return EngineResponse(answer, usage, time.monotonic() - request.started, request.id, row)

    async def _wait_after(self, request: _Request[Any], failure: TryFailed) -> None:
        """Count a failed try, and wait before the next one.

        Raises `EngineDead` or `RequestFailed` if there should be no other one.
        """
        if failure.timed_out:
            billed = "; the provider may bill each" if self.hosted else ""
            self._say(
                f"{failure} from {self.model} (serving.request_timeout_s): try {request.tries} of"
                f" {self._retry.tries} of a request{billed}"
            )
        wait_s = self._retry.wait_s(request.tries)
        # The engine refused the request before any work, or is away: it costs nothing to wait longer.
        is_outage = failure.usage == Usage() and not (failure.lost and self._require_alive)
        if is_outage:
            request.outage_s += failure.after_s or wait_s
            is_over = request.outage_s > self._retry.outage_s
        else:
            request.failures += 1
            is_over = request.failures >= self._retry.tries
        if is_over:
            # Other requests to a hosted model may still succeed.
            if failure.lost and not self.hosted and await self.endpoint.health(BUSY_S) != 200:
                raise EngineDead(
                    f"the engine at {self.endpoint} is gone: {failure}; once it answers, rerun the same"
                    " command to resume"
                ) from failure
            raise RequestFailed(
                f"a request failed {request.tries} times, most recently: {failure}"
            ) from failure
        if failure.after_s is not None:
            self._not_before = max(self._not_before, time.monotonic() + failure.after_s)
            return
        if is_outage:
            self._note_outage(str(failure))
        # Time without an engine does not count against the answer's limit.
        with pause_limit(request.started) if is_outage else nullcontext():
            await asyncio.sleep(wait_s)

    def _record(
        self,
        request: _Request[Any],
        status: Status,
        usage: Usage | None,
        error: BaseException | None = None,
        *,
        thought_cut: bool = False,
    ) -> None:
        """Write the ledger row of the last try, which has just ended."""
        self.meter.record(
            LedgerRow(
                request=request.id,
                retry=request.tries - 1,
                time=time.time(),
                labels=request.labels,
                model=self.model,
                status=status,
                wasted=error is not None or status == "failed",
                usage=usage,
                seconds=round(time.monotonic() - request.started, 4),
                error=(str(error) or type(error).__name__) if error else None,
                cacheable=request.cacheable if usage and usage.prompt else None,
                at_most=request.most if usage is None else None,
                thought_cut=thought_cut,
            )
        )


async def wait_until_ready(engine: Engine) -> None:
    """Send a real, tiny completion, since `/health` does not show whether the model answers.

    Raises `ServerFailed`; `ServerDied` if our server has died.
    """
    try:
        reply = await engine.complete(Prompt([0]), max_tokens=1, labels={"role": READINESS})
    except ServerDied:
        raise
    except (RequestRefused, RequestFailed, EngineDead, ContextOverflow) as error:
        raise ServerFailed(f"the engine at {engine.endpoint} is up but does not answer: {error}") from error
    reply.record("ok", reply.usage)


async def run_together(
    do: Callable[[Item], Awaitable[Result]], items: Sequence[Item], most: int
) -> list[Result]:
    """Call `do` on all `items` in order, at most `most` at the same time. Raises the first exception and
    cancels the other calls."""
    gate = asyncio.Semaphore(most)

    async def run_one(item: Item) -> Result:
        async with gate:
            return await do(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_one(item)) for item in items]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
