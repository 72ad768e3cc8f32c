"""The agent loop: ask the model, run its tool call, send the reply. Every role uses it.

A `Clock` has the budgets, and a `Toolbox` makes tools of typed Python functions.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf

import msgspec

from serving.answer_limit import AnswerLimit
from serving.conversation import Completion, Conversation
from serving.errors import ContextOverflow
from serving.tokens.tools import ToolCall, ToolSpec
from serving.usage import Usage
from speedrunner.store.episode_summary import Exchange
from speedrunner.store.records import CallNode, Message, Termination, Turn


class ToolReply(msgspec.Struct, frozen=True):
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


@dataclass(slots=True)
class Clock:
    """Budgets that one or several agents share; each use is subtracted.

    Attributes:
        llm_calls: remaining requests to the model; a request counts even if its answer has no valid call.
        deadline: value of `time.monotonic()` at which the work is ended. Time in the admission queue, or
            without an engine, moves the deadline.
        answers_count: whether the model's answer time counts; if not, it moves the deadline as well.
    """

    llm_calls: int
    deadline: float = inf
    answers_count: bool = True

    @property
    def remaining_s(self) -> float:
        """Return the seconds until the deadline."""
        return self.deadline - time.monotonic()

    async def ask(self, conversation: Conversation) -> tuple[Completion, float]:
        """Make one request. Return its answer, and the seconds that it waited for a slot or for an engine,
        which do not count against the deadline.

        Raises `TimeoutError`: the deadline came before the answer.
        """
        self.llm_calls -= 1
        began = time.monotonic()
        queued_s = 0.0 if conversation.is_repeating else await conversation.ready()
        if self.answers_count:
            self.deadline += queued_s
        async with AnswerLimit(self.deadline if self.answers_count else None) as limit:
            answer = await conversation.ask()
        self.deadline += limit.paused_s if self.answers_count else time.monotonic() - began
        return answer, queued_s + limit.paused_s


Tool = Callable[..., str | ToolReply] | Callable[..., Awaitable[str | ToolReply]]
"""A documented, annotated function that an agent calls. It returns the reply as text or as `ToolReply`."""


class ToolError(Exception):
    """Refuses an agent's request; the agent reads the text."""


class Toolbox:
    """Typed functions offered as tools, in this order.

    A tool raises `ToolError` for the agent's mistakes. Any other exception is a bug or an infrastructure
    error and is re-raised.

    Args:
        tools: documented, annotated functions, async or not, that return the reply's text. A tool that acts
            in an episode returns the `ToolReply` of that action.
        finish: the tool that ends the agent's work; `None`: a `ToolReply` with a termination ends it.
    """

    def __init__(self, tools: Sequence[Tool], finish: Tool | None = None) -> None:
        self._finish = finish and finish.__name__
        self._tools = {tool.__name__: tool for tool in [*tools, *([finish] if finish else [])]}
        self.specs = [
            ToolSpec.from_signature(name, inspect.signature(tool, eval_str=True), inspect.getdoc(tool) or "")
            for name, tool in self._tools.items()
        ]

    async def execute(self, call: ToolCall, string_tokens: int) -> ToolReply:
        """Run one call, and return its reply; a refused call is part of it.

        Args:
            string_tokens: maximum tokens of a string argument, used to report a truncated one.
        """
        node = CallNode(name=call.name, kind="tool", arguments=call.arguments)
        began = time.monotonic()
        termination = Termination.SUBMITTED if call.name == self._finish else None
        try:
            if call.cut:
                names, verb = " and ".join(call.cut), "was" if len(call.cut) == 1 else "were"
                in_parts = self._finish not in (None, call.name)  # work continues after this call
                advice = "Send it in parts." if in_parts else "Write less."
                why = f"a string can have at most {string_tokens:,} tokens"
                raise ToolError(f"{names} {verb} cut, and the call was not executed: {why}. {advice}")
            result = self._tools[call.name](**call.arguments)
            said = await result if inspect.isawaitable(result) else result
            if isinstance(said, ToolReply):
                node.calls, node.actions = [said.executed], said.executed.actions
                termination, said = said.termination or termination, said.text
            text = node.result = said
        except ToolError as error:
            node.error, termination = str(error), None
            text = f"Error: {error}"
        node.seconds = round(time.monotonic() - began, 4)
        return ToolReply(text, node, termination)


async def run_agent(
    conversation: Conversation,
    opening: list[Message],
    execute: Execute,
    clock: Clock,
    record: Callable[[Turn, Completion, str], None],
    status: Callable[[str, Usage], str] = lambda text, usage: text,
    most: int | None = None,
    most_repeats: int = 0,
) -> Termination:
    """Let an agent work until a tool, a limit or the context ends it.

    Args:
        conversation: opened with the messages of `opening`.
        clock: reduced by every request.
        record: called with each turn, its answer and its reply as soon as the turn is complete.
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
            answer, queued_s = await clock.ask(conversation)
        except ContextOverflow:
            return Termination.CONTEXT_OVERFLOW
        except TimeoutError:
            return Termination.WALL_CLOCK
        turn = Turn(
            messages=messages,
            text=answer.text,
            reasoning=answer.reasoning,
            call=answer.call,
            usage=answer.usage,
            seconds=round(answer.seconds, 4),
            queued_s=round(queued_s, 4),
            error=None if answer.problem is None else str(answer.problem),
            request=answer.request,
        )
        termination = Termination.CONTEXT_OVERFLOW if answer.overflows else None
        text = f"Error: {turn.error}. Answer with exactly one tool call."
        try:
            if turn.call is not None:
                reply = await execute(turn.call)
                turn.executed, text, termination = reply.executed, reply.text, reply.termination
        finally:
            record(turn, answer, text)
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
