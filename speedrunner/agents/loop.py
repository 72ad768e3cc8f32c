"""The agent loop: ask the model, run its tool call, send the reply. Every role uses it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from serving.answer_limit import limit_answer
from serving.conversation import AnswerOverflow, Conversation
from serving.errors import ContextOverflow
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.store.records import CallNode, Message, Termination, Turn
from speedrunner.store.repeats import Exchange


@dataclass(frozen=True, slots=True)
class ToolReply:
    """The result of a tool call.

    Attributes:
        text: the reply that the agent reads.
        executed: the tree of executed calls.
        termination: set if the agent's work is over.
    """

    text: str
    executed: CallNode
    termination: Termination | None = None


Execute = Callable[[ToolCall], Awaitable[ToolReply]]
"""Runs one valid tool call."""


@dataclass(slots=True)
class AgentLimits:
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


def plain_messages(messages: list[Message]) -> list[dict[str, str]]:
    """Return messages in the form that chat templates and chat completions take."""
    return [{"role": message.role, "content": message.content} for message in messages]


async def run_agent(
    conversation: Conversation,
    opening: list[Message],
    execute: Execute,
    limits: AgentLimits,
    record: Callable[[Turn], None],
    status: Callable[[str, Usage], str] = lambda text, usage: text,
    most: int | None = None,
    most_repeats: int = 0,
) -> Termination:
    """Let an agent work until a tool, a limit or the context ends it.

    Args:
        conversation: opened with the messages of `opening`.
        limits: reduced by every request.
        record: called with each turn as soon as it is complete.
        status: called with each reply and the usage of the answer before it; returns the reply that the agent
            sees.
        most: maximum number of requests of this agent; `None`: all that are left.
        most_repeats: repeated calls in a row that end the work, see `speedrunner.store.repeats`; 0: no limit.

    Raises:
        ServingError: the engine failed (never for the model's own mistakes).
        Exception: any error that `execute` raises.
    """
    messages = opening
    asked = repeats = 0
    before: Exchange | None = None
    while limits.llm_calls > 0 and (most is None or asked < most):
        limits.llm_calls -= 1
        asked += 1
        began = time.monotonic()
        queued_s = await conversation.ready()
        if limits.deadline is not None and limits.answers_count:
            limits.deadline += queued_s
        try:
            async with limit_answer(limits.deadline if limits.answers_count else None) as answer:
                completion, overflow = await conversation.ask(), None
        except AnswerOverflow as error:
            completion, overflow = error.completion, error
        except ContextOverflow:
            return Termination.CONTEXT_OVERFLOW
        except TimeoutError:
            return Termination.WALL_CLOCK
        queued_s += answer.paused_s
        if limits.deadline is not None:
            limits.deadline += answer.paused_s if limits.answers_count else time.monotonic() - began
        turn = Turn(
            messages=messages,
            text=completion.text,
            reasoning=completion.reasoning,
            call=completion.call,
            usage=completion.usage,
            seconds=round(completion.seconds, 4),
            queued_s=round(queued_s, 4),
            request=completion.request,
            token_ids=completion.recorded or msgspec.UNSET,
        )
        if overflow is not None:
            turn.error = str(overflow)
            record(turn)
            return Termination.CONTEXT_OVERFLOW
        termination = None
        if turn.call is None:
            turn.error = str(completion.problem)
            text = f"Error: {completion.problem}. Answer with exactly one tool call."
        else:
            try:
                reply = await execute(turn.call)
            except BaseException:
                record(turn)
                raise
            turn.executed, text, termination = reply.executed, reply.text, reply.termination
        record(turn)
        if termination is not None:
            return termination
        if limits.remaining_s <= 0:
            return Termination.WALL_CLOCK
        text = status(text, turn.usage)
        exchange = Exchange(turn, text)
        repeats = repeats + 1 if exchange.repeats(before) else 0
        if repeats == most_repeats > 0:
            return Termination.REPEAT_LIMIT
        before = exchange
        conversation.tell(text)
        messages = [Message("tool" if turn.call else "user", text)]
    return Termination.CALL_LIMIT
