"""The episodes of one client: the limits of a run, and the texts that the actor of a run reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from envs import Outcome, Task
from serving.errors import InvalidCall
from serving.tokens.tools import ToolCall, checked_call
from serving.usage import MAX_INTEGER
from speedrunner.agents.actor import execute_call, task_text
from speedrunner.agents.clock import Clock
from speedrunner.agents.typed_call import UnreadableLine, read_call
from speedrunner.skill_server.game import START, Game
from speedrunner.store.records import Termination
from speedrunner.workers.env_worker import EnvWorker, WorkerError

IDLE_S = 1800.0
"""Seconds without a message of its client after which a session and its episode end."""


def describe_full(limit: int) -> str:
    """Return why a client is refused while all sessions are in use."""
    return f"all {limit} sessions are in use: end one, or start the server with --sessions N"


@dataclass
class Episode:
    """A running or ended episode.

    Attributes:
        limits: requests and time that are left; each tool call counts as one request.
        outcome: the score as of the last call; `None` if an infrastructure error ended the episode.
        calls: tool calls so far, invalid ones included.
        actions: primitive calls that advanced the world.
        replied: time of the last reply, a value of `time.monotonic()`.
    """

    limits: Clock
    outcome: Outcome | None
    replied: float
    calls: int = 0
    actions: int = 0
    termination: Termination | None = None

    def describe_end(self) -> str:
        """Return the result in one line."""
        score = "unscored" if self.outcome is None else f"score {self.outcome.score:g}"
        return (
            f"The episode is over ({self.termination}): {score}, {self.calls} calls, {self.actions} actions."
            f" Call {START} for another one."
        )


@dataclass(frozen=True)
class Reply:
    """The result of a tool call.

    Attributes:
        text: what the actor of a run would read.
        is_error: whether the call failed or was refused.
        end: the episode's result in one line, with the call that ended it.
        status: the episode's state for programs: score, success, termination, calls, actions.
    """

    text: str
    is_error: bool = False
    end: str | None = None
    status: dict[str, Any] | None = None


class Player:
    """Plays one episode after another, one call at a time. An async context manager.

    Args:
        lend: lends a worker for one episode.
    """

    def __init__(self, game: Game, lend: Callable[[], AbstractAsyncContextManager[EnvWorker]]) -> None:
        self._game = game
        self._lend = lend
        self._lease = AsyncExitStack()
        self._worker: EnvWorker | None = None
        self._episode: Episode | None = None
        self._running: asyncio.Task[Reply] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the episode, and with it the processes of its skills. A running call is killed."""
        try:
            if self._running is not None:
                self._running.cancel()
                await asyncio.wait([self._running])
        finally:
            await self._give_back()

    async def start(self, arguments: Mapping[str, Any]) -> Reply:
        """Start an episode: the tool `START`."""
        return await self._alone(START, lambda: self._start(arguments))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Run a tool call of the actor."""
        return await self._alone(name, lambda: self._act(lambda: _read_json(name, arguments)))

    async def call_typed(self, line: str) -> Reply:
        """Run a typed call of a primitive; see `read_call`."""
        signatures = {each.name: each.signature for each in self._game.env.primitives}

        def read() -> ToolCall:
            try:
                found = read_call(line.strip(), signatures)
            except UnreadableLine as error:
                raise InvalidCall(str(error), line) from None
            return _read_json(found.name, found.arguments)

        return await self._alone("the last call", lambda: self._act(read))

    async def _alone(self, name: str, work: Callable[[], Coroutine[Any, Any, Reply]]) -> Reply:
        """Run a call. While another one runs, refuse it.

        A call continues if the client stops waiting for it: the world cannot go back.
        """
        if self._running is not None and not self._running.done():
            return Reply(
                f"Error: {self._running.get_name()} is still running, and an episode runs one call at a time."
                f" Wait for its result, then call {name} again.",
                is_error=True,
            )
        self._running = asyncio.create_task(self._carry_out(work()), name=name)
        return await asyncio.shield(self._running)

    async def _carry_out(self, work: Coroutine[Any, Any, Reply]) -> Reply:
        try:
            return await work
        except InvalidCall as error:
            return Reply(f"Error: {error}", is_error=True)
        except WorkerError as error:
            if self._episode is None:
                await self._give_back()
                return Reply(f"Error: {error}", is_error=True)
            self._episode.outcome = None
            return await self._reply(f"Error: {error}", True, Termination.ENVIRONMENT_ERROR)

    async def _start(self, arguments: Mapping[str, Any]) -> Reply:
        """Start an episode. Raises `InvalidCall`, `WorkerError`."""
        game = self._game
        call = checked_call(_read_json(START, arguments), {START: game.start_tool}, "")
        chosen: dict[str, Any] = {"task": game.task.name, "index": game.task.index} | call.arguments
        if abs(chosen["index"]) > MAX_INTEGER:
            raise InvalidCall(f"index must be at most {MAX_INTEGER} (got {chosen['index']})", "")
        task = Task(game.config.env.name, chosen["task"], chosen["index"])
        self._episode = None
        await self._give_back()
        worker = self._worker = await self._lease.enter_async_context(self._lend())
        opening = await worker.reset(
            task, game.spec.library.module(), game.env.limits.actions, game.state.skill_seed(task)
        )
        run, now = game.config.run, time.monotonic()
        limits = Clock(game.env.limits.llm_calls, now + run.wall_clock_s, run.wall_clock == "all")
        self._episode = Episode(limits, worker.outcome, now)
        return Reply(task_text(opening), status=self._status())

    async def _act(self, read: Callable[[], ToolCall]) -> Reply:
        """Run a call of the actor in the running episode. Raises `WorkerError`.

        Args:
            read: returns the call. Raises `InvalidCall`.
        """
        episode, worker = self._episode, self._worker
        if episode is None or worker is None or episode.termination is not None:
            over = episode.describe_end() if episode else f"No episode is running: call {START} first."
            return Reply(f"Error: {over}", is_error=True, status=self._status())
        limits = episode.limits
        if limits.deadline is not None and not limits.answers_count:
            limits.deadline += time.monotonic() - episode.replied
        if limits.remaining_s <= 0:  # the client took too long
            return await self._reply("Error: the time of the episode is over.", True, Termination.WALL_CLOCK)
        limits.llm_calls -= 1
        episode.calls += 1
        try:
            checked = checked_call(read(), self._game.tools, "")
        except InvalidCall as error:
            return await self._reply(f"Error: {error}", True)
        reply, executed = await execute_call(worker, checked, self._game.config, limits.remaining_s)
        if executed is not None:
            episode.outcome, episode.actions = executed.outcome, executed.actions
        return await self._reply(reply.text, reply.executed.error is not None, reply.termination)

    async def _reply(self, text: str, is_error: bool, termination: Termination | None = None) -> Reply:
        """Return the reply of a call in the running episode, which a limit may end."""
        episode = self._episode
        assert episode is not None
        episode.replied = time.monotonic()
        if termination is None and episode.limits.llm_calls <= 0:
            termination = Termination.CALL_LIMIT
        if termination is None and episode.limits.remaining_s <= 0:
            termination = Termination.WALL_CLOCK
        if termination is None:
            return Reply(text, is_error, status=self._status())
        episode.termination = termination
        await self._give_back()
        return Reply(text, is_error, episode.describe_end(), self._status())

    def _status(self) -> dict[str, Any] | None:
        episode = self._episode
        if episode is None:
            return None
        return {
            "score": episode.outcome.score if episode.outcome else None,
            "success": episode.outcome.success if episode.outcome else None,
            "termination": episode.termination and episode.termination.value,
            "calls": episode.calls,
            "actions": episode.actions,
        }

    async def _give_back(self) -> None:
        """Return the worker, if there is one, so that nothing of the episode remains."""
        self._worker = None
        await self._lease.aclose()


def _read_json(name: str, arguments: Mapping[str, Any]) -> ToolCall:
    """Return a call with JSON arguments, as a model's call has them: NaN and infinite numbers become null.

    Raises `InvalidCall`.
    """
    try:
        return ToolCall(name, msgspec.json.decode(msgspec.json.encode(arguments)))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise InvalidCall(f"{name}: its arguments are not JSON ({error})", "") from None
