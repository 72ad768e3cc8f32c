"""An agent of a sleep that continues after a kill: it first repeats the answers in the sleep's journal.

The method runs from its start again. Each request that the journal has is answered from there, without the
engine, and most tool calls run again, so the method's own state becomes what it was. Calls of tools with a
session of their own, such as a code interpreter, are not run again: the agent has their recorded replies, and
reads that the session's variables are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from serving.conversation import AnswerOverflow, Completion, Conversation
from serving.errors import CannotContinue, InvalidCall
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.agents.loop import Execute, ToolReply
from speedrunner.store.records import CallNode, Turn
from speedrunner.store.sleep_journal import SleepStep

LOST = "(The run was interrupted here. Your session was restarted: all its variables and imports are lost.)"


class ChangedSleep(Exception):
    """A sleep does not repeat its journal, so it has to start over."""


class ResumedAgent(Conversation):
    """A conversation that first repeats recorded answers.

    Args:
        conversation: opened as the recorded one was.
        steps: the agent's steps in the journal.
        sessions: names of tools that keep a session.
        record: called with each new turn, its answer, and whether that overflowed the context.
    """

    def __init__(
        self,
        conversation: Conversation,
        steps: Sequence[SleepStep],
        sessions: Collection[str],
        record: Callable[[Turn, Completion, bool], None],
    ) -> None:
        self._conversation = conversation
        self._left = deque(steps)
        self._sessions = sessions
        self._record = record
        self._answer: Completion | None = None
        self._overflowed = self._lost_session = False

    @property
    def repeats(self) -> bool:
        """Return whether recorded answers are left to repeat."""
        return bool(self._left)

    async def ready(self) -> float:
        """See `Conversation`."""
        return 0.0 if self._left else await self._conversation.ready()

    async def ask(self) -> Completion:
        """See `Conversation`."""
        if self._left:
            return self._repeat(self._left[0])
        try:
            self._answer = await self._conversation.ask()
        except AnswerOverflow as error:
            self._answer, self._overflowed = error.completion, True
            raise
        return self._answer

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        self._conversation.tell(text)

    def rest(self) -> None:
        """See `Conversation`."""
        self._conversation.rest()

    def close(self) -> None:
        """See `Conversation`."""
        self._conversation.close()

    def executes(self, execute: Execute) -> Callable[[ToolCall], Awaitable[ToolReply]]:
        """Return a function that runs a call, or returns the recorded reply of a session's tool."""

        async def run(call: ToolCall) -> ToolReply:
            if not self._left or call.name not in self._sessions:
                return await execute(call)
            node = _turn(self._left[0]).executed
            assert node is not None
            self._lost_session = True
            return ToolReply(f"Error: {node.error}" if node.error else str(node.result), node)

        return run

    def finish_turn(self, turn: Turn) -> Turn:
        """Record a complete turn, and return it as it is recorded. Raises `ChangedSleep`.

        A turn whose call was stopped by an exception is not recorded: its answer is asked for again.
        """
        if turn.call is not None and turn.executed is None and turn.error is None:
            return turn
        if self._left:
            recorded = _turn(self._left.popleft())
            if _outline(turn) != _outline(recorded):
                raise ChangedSleep("a recorded turn was not repeated")
            return recorded
        assert self._answer is not None
        self._record(turn, self._answer, self._overflowed)
        return turn

    def reply(self, status: Callable[[str, Usage], str]) -> Callable[[str, Usage], str]:
        """Return a function that completes a reply: as recorded, or with `status`."""

        def text(said: str, usage: Usage) -> str:
            if self._left:
                return _turn(self._left[0]).messages[-1].content
            note = f"\n\n{LOST}" if self._lost_session else ""
            self._lost_session = False
            return status(said, usage) + note

        return text

    def _repeat(self, step: SleepStep) -> Completion:
        turn, completion = _turn(step), step.completion
        assert completion is not None
        if turn.call is None:
            problem = InvalidCall(turn.error or "", completion.text)
            completion = msgspec.structs.replace(completion, problem=problem)
        try:
            self._conversation.recall(completion)
        except CannotContinue:
            raise ChangedSleep("its model's conversations cannot continue in another process") from None
        if step.overflowed:
            raise AnswerOverflow(turn.error or "", completion)
        return completion


def _turn(step: SleepStep) -> Turn:
    assert step.turn is not None  # an agent's steps have one
    return step.turn


def _outline(turn: Turn) -> object:
    """Return what must be equal when a turn is repeated: all but times and the request's id."""
    return msgspec.to_builtins(
        msgspec.structs.replace(
            turn, seconds=0.0, queued_s=0.0, request="", executed=_timeless(turn.executed)
        )
    )


def _timeless(node: CallNode | None) -> CallNode | None:
    """Return a call of an agent's tool without its duration; calls below it are not repeated exactly."""
    return None if node is None else msgspec.structs.replace(node, seconds=0.0, calls=[])
