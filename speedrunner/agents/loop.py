"""The agent loop: ask, run the one tool call, tell. Actor, inducer and every other role use it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from serving.conversation import Conversation
from serving.errors import ContextOverflow
from serving.usage import Usage
from speedrunner.store.records import CallNode, Ending, Message, ToolCall, Turn


@dataclass(frozen=True, slots=True)
class Reply:
    """What a tool call came to.

    Attributes:
        text: what the agent is told.
        executed: the tree of what was run.
        ending: set when the agent's work is over.
    """

    text: str
    executed: CallNode
    ending: Ending | None = None


@dataclass(slots=True)
class AgentLimits:
    """Budgets of one agent's work.

    Attributes:
        llm_calls: requests to the model, answers without a valid call included.
        deadline: moment of `time.monotonic()` at which the work is ended; `None` for none. Time during which
            we hold the agent back ourselves moves it.
    """

    llm_calls: int
    deadline: float | None = None

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()


async def run_agent(
    conversation: Conversation,
    opening: list[Message],
    execute: Callable[[ToolCall], Awaitable[Reply]],
    limits: AgentLimits,
    record: Callable[[Turn], None],
    status: Callable[[str, Usage, int], str] = lambda text, usage, calls: text,
) -> Ending:
    """Let an agent work until a tool, a limit or the context ends it.

    Args:
        conversation: opened with the messages of `opening`.
        execute: runs one valid tool call.
        record: gets each turn as soon as it is complete.
        status: called with each reply, the usage of the answer to it and the number of calls left; returns
            the reply as the agent is to see it.

    Raises:
        ServingError: the engine failed (never for the model's own mistakes).
        Exception: whatever `execute` raises.
    """
    messages = opening
    for left in reversed(range(limits.llm_calls)):
        held_s = await conversation.ready()
        if limits.deadline is not None:
            limits.deadline += held_s
        try:
            async with asyncio.timeout_at(limits.deadline):
                completion = await conversation.ask()
        except ContextOverflow:
            return Ending.CONTEXT_OVERFLOW
        except TimeoutError:
            return Ending.WALL_CLOCK
        turn = Turn(
            messages=messages,
            text=completion.text,
            reasoning=completion.reasoning,
            usage=completion.usage,
            seconds=round(completion.seconds, 4),
            held_s=round(held_s, 4),
        )
        ending = None
        if completion.call is None:
            turn.error = str(completion.problem)
            text = f"Error: {completion.problem}. Answer with exactly one call of one of your tools."
        else:
            turn.call = ToolCall(completion.call.name, completion.call.arguments)
            try:
                reply = await execute(turn.call)
            except BaseException:
                record(turn)
                raise
            turn.executed, text, ending = reply.executed, reply.text, reply.ending
        record(turn)
        if ending is not None:
            return ending
        if limits.remaining_s <= 0:
            return Ending.WALL_CLOCK
        text = status(text, turn.usage, left)
        conversation.tell(text)
        messages = [Message("tool" if turn.call else "user", text)]
    return Ending.CALL_LIMIT
