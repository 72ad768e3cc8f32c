"""The corridor without skills, workers for it, and the first message of a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from envs import Limits
from speedrunner.agents.actor import ActorSpec
from speedrunner.config.compose import compose
from speedrunner.config.named import choose_task
from speedrunner.library.library import Library
from speedrunner.skill_server.game import Game
from speedrunner.store.stored_run import State
from speedrunner.workers.local_worker import LocalWorker
from speedrunner.workers.worker_messages import Execute, Load, Reply, Reset
from tests.scripted_runs import CORRIDOR
from tests.toy_env import Corridor

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


class SlowWorker(LocalWorker):
    """A worker that runs a call when the test lets it."""

    def __init__(self) -> None:
        super().__init__(Corridor())
        self.called = asyncio.Event()
        self.may_run = asyncio.Event()

    async def request(self, request: Reset | Load | Execute, limit_s: float | None) -> Reply:
        if isinstance(request, Execute):
            self.called.set()
            await self.may_run.wait()
        return await super().request(request, limit_s)


class Lender:
    """Lends one worker at a time, and counts."""

    def __init__(self, slow: bool = False) -> None:
        self.lent = 0
        self.returned = 0
        self._slow = slow
        self.worker: LocalWorker | None = None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[LocalWorker]:
        self.lent += 1
        self.worker = SlowWorker() if self._slow else LocalWorker(Corridor())
        try:
            yield self.worker
        finally:
            await self.worker.close()
            self.returned += 1


def make_game(*settings: str, llm_calls: int = 20) -> Game:
    """The corridor without skills."""
    config = compose([f"env={CORRIDOR}", *settings])
    env = Corridor()
    env.limits = Limits(llm_calls=llm_calls, actions=config.run.max_actions)
    spec = ActorSpec(Library(env.primitives))
    return Game(config, env, spec, choose_task(config), State(secret="s"))
