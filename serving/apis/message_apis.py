"""What the routes share that send messages and tools.

Calls are not constrained by us: an invalid one is counted and answered.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from serving.conversation import Completion, Conversation, sampling, status_of
from serving.engine.answers import ChatCompletion, Response
from serving.engine.client import EngineResponse
from serving.errors import InvalidCall, TruncatedCall
from serving.model_config import Role
from serving.tokens.tools import ToolCall, ToolSpec, checked_call

T = TypeVar("T", ChatCompletion, Response)

ANSWER_TOKENS = 1024
"""Room for a call's own text beside its strings and the thinking."""

SLACK_TOKENS = 1024
"""More than engines put around what is sent."""


class WrittenCall(msgspec.Struct, frozen=True):
    """A tool call as the model wrote it; `arguments` should be JSON."""

    id: str
    name: str
    arguments: str


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, in whatever form it came.

    Attributes:
        calls: its tool calls, of which there should be one.
        cut: whether it reached its limit.
        echo: what is sent back of it in later requests.
    """

    text: str
    reasoning: str
    calls: list[WrittenCall]
    cut: bool
    echo: list[dict[str, Any]]


class MessageConversation(Conversation, Generic[T]):
    """A conversation as messages.

    Its length in tokens is not known here, so that it is never queued.

    Args:
        send: the engine's method for the route.

    Attributes:
        items: all that was said so far, as each request carries it.
        options: what a request carries beside that and the answer's length.
    """

    def __init__(
        self,
        send: Callable[..., Awaitable[EngineResponse[T]]],
        messages: list[dict[str, str]],
        tools: list[ToolSpec],
        role: Role,
        labels: dict[str, str],
    ) -> None:
        self.items: list[dict[str, Any]] = [dict(message) for message in messages]
        self.options = {
            **sampling(role),
            "tools": [self.tool(tool) for tool in tools],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            **self.effort(role.reasoning_effort),
        }
        self._send: Callable[..., Awaitable[EngineResponse[T]]] = send
        self._tools = {tool.name: tool for tool in tools}
        self._labels = labels
        self._max_tokens = role.string_tokens + ANSWER_TOKENS
        self._open_calls: list[str] = []
        # A token stands for at least one byte, so bytes bound tokens.
        self._prompt_bound = _bytes(self.items) + _bytes(self.options["tools"]) + SLACK_TOKENS

    @staticmethod
    @abstractmethod
    def tool(tool: ToolSpec) -> dict[str, Any]:
        """A tool in the route's form."""

    @staticmethod
    @abstractmethod
    def effort(effort: str | None) -> dict[str, Any]:
        """Return the request's fields about reasoning, in the route's form."""

    @abstractmethod
    def read(self, reply: EngineResponse[T]) -> Said:
        """The answer in a response."""

    @abstractmethod
    def output(self, call_id: str, text: str) -> dict[str, Any]:
        """What a call is answered with."""

    async def ask(self) -> Completion:
        """See `Conversation`."""
        reply = await self._send(
            self.items,
            max_tokens=self._max_tokens,
            prompt_bound=self._prompt_bound,
            labels=self._labels,
            **self.options,
        )
        said = self.read(reply)
        text = said.text or "".join(
            json.dumps({"name": call.name, "arguments": call.arguments}) for call in said.calls
        )
        call, problem = None, None
        try:
            if said.cut:
                tokens = reply.usage.completion
                raise TruncatedCall(f"the answer was cut after {tokens} tokens; write less", text)
            call = self._checked(said.calls, text)
        except InvalidCall as error:
            problem = error
        reply.record(status_of(problem), reply.usage)
        self._prompt_bound = reply.usage.prompt + reply.usage.completion + SLACK_TOKENS
        self.items += said.echo
        self._open_calls = [each.id for each in said.calls]
        return Completion(
            text=text,
            reasoning=said.reasoning,
            call=call,
            problem=problem,
            usage=reply.usage,
            seconds=reply.seconds,
        )

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        told = [self.output(call_id, text) for call_id in self._open_calls]
        told = told or [{"role": "user", "content": text}]
        self.items += told
        self._prompt_bound += _bytes(told)

    def _checked(self, calls: list[WrittenCall], text: str) -> ToolCall:
        if len(calls) != 1:
            raise InvalidCall(f"the answer has {len(calls)} tool calls; make exactly one", text)
        try:
            arguments = msgspec.json.decode(calls[0].arguments or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, TypeError) as error:
            raise InvalidCall(f"the arguments are not readable: {error}", text) from error
        return checked_call(ToolCall(calls[0].name, arguments), self._tools, text)


def _bytes(value: Any) -> int:
    return len(json.dumps(value).encode())
