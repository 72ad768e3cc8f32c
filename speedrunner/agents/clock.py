"""The time and the requests that agents have left."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from serving.answer_limit import limit_answer
from serving.conversation import Conversation


@dataclass(slots=True)
class Waiting:
    """Seconds in which a request waited for a slot or for an engine. They count as no one's time."""

    seconds: float = 0.0


@dataclass(slots=True)
class Clock:
    """Budgets that one or several agents share; each use is subtracted.

    Attributes:
        llm_calls: remaining requests to the model; a request counts even if its answer has no valid call.
        deadline: value of `time.monotonic()` at which the work is ended; `None`: no deadline. Time in the
            admission queue, or without an engine, moves the deadline.
        answers_count: whether the model's answer time counts; if not, it moves the deadline as well.
    """

    llm_calls: int
    deadline: float | None = None
    answers_count: bool = True

    @property
    def remaining_s(self) -> float:
        """Return the seconds until the deadline."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    @asynccontextmanager
    async def request(self, conversation: Conversation) -> AsyncIterator[Waiting]:
        """Count one request, which is made in this context.

        Raises `TimeoutError`: the deadline came before the answer.
        """
        self.llm_calls -= 1
        began = time.monotonic()
        waiting = Waiting(await conversation.ready())
        if self.answers_count:
            self._extend(waiting.seconds)
        async with limit_answer(self.deadline if self.answers_count else None) as answer:
            yield waiting
        waiting.seconds += answer.paused_s
        self._extend(answer.paused_s if self.answers_count else time.monotonic() - began)

    def _extend(self, seconds: float) -> None:
        if self.deadline is not None:
            self.deadline += seconds
