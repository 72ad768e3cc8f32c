"""The agent loop: ask the model, run its tool call, send the reply. Every role uses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from serving.conversation import AnswerOverflow, Conversation
from serving.errors import ContextOverflow
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.agents.clock import Clock
from speedrunner.store.episode_summary import Exchange
from speedrunner.store.records import CallNode, Message, Termination, Turn


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


def plain_messages(messages: list[Message]) -> list[dict[str, str]]:
    """Return messages in the form that chat templates and chat completions take."""
    return [{"role": message.role, "content": message.content} for message in messages]


async def run_agent(
    conversation: Conversation,
    opening: list[Message],
    execute: Execute,
    clock: Clock,
    record: Callable[[Turn], None],
    status: Callable[[str, Usage], str] = lambda text, usage: text,
    most: int | None = None,
    most_repeats: int = 0,
) -> Termination:
    """Let an agent work until a tool, a limit or the context ends it.

    Args:
        conversation: opened with the messages of `opening`.
        clock: reduced by every request.
        record: called with each turn as soon as it is complete.
        status: called with each reply and the usage of the answer before it; returns the reply that the agent
            sees.
        most: maximum number of requests of this agent; `None`: all that are left.
        most_repeats: repeated calls in a row that end the work, see `Exchange`; 0: no limit.

    Raises:
        ServingError: the engine failed (never for the model's own mistakes).
        Exception: any error that `execute` raises.
    """
    messages = opening
    asked = repeats = 0
    before: Exchange | None = None
    while clock.llm_calls > 0 and asked != most:
        asked += 1
        try:
            turn, termination = await _ask(conversation, messages, clock)
        except ContextOverflow:
            return Termination.CONTEXT_OVERFLOW
        except TimeoutError:
            return Termination.WALL_CLOCK
        text = f"Error: {turn.error}. Answer with exactly one tool call."
        try:
            if turn.call is not None and termination is None:
                reply = await execute(turn.call)
                turn.executed, text, termination = reply.executed, reply.text, reply.termination
        finally:
            record(turn)
        if termination is not None:
            return termination
        if clock.remaining_s <= 0:
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


async def _ask(
    conversation: Conversation, messages: list[Message], clock: Clock
) -> tuple[Turn, Termination | None]:
    """Return the model's answer as a turn, and the termination if the answer filled the context.

    Raises:
        ContextOverflow: the prompt does not fit.
        TimeoutError: the time was over before the answer came.
    """
    termination = None
    async with clock.request(conversation) as waiting:
        try:
            completion = await conversation.ask()
            error = None if completion.call else str(completion.problem)
        except AnswerOverflow as overflow:
            completion, error = overflow.completion, str(overflow)
            termination = Termination.CONTEXT_OVERFLOW
    turn = Turn(
        messages=messages,
        text=completion.text,
        reasoning=completion.reasoning,
        call=completion.call,
        usage=completion.usage,
        seconds=round(completion.seconds, 4),
        queued_s=round(waiting.seconds, 4),
        error=error,
        request=completion.request,
    )
    return turn, termination
