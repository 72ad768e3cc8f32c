"""The common base of the two APIs that send messages and tools.

Tool calls are not constrained here: an invalid one is counted, and answered with what is wrong.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from serving.conversation import Completion, ResumableConversation, sampling, status_of
from serving.engine.answers import ChatCompletion, Response
from serving.engine.client import EngineResponse
from serving.errors import InvalidCall, TruncatedCall
from serving.model_config import Role
from serving.tokens.tools import ToolCall, ToolSpec, checked_call

T = TypeVar("T", ChatCompletion, Response)

ANSWER_TOKENS = 1024
"""Room for a call's own syntax (without its strings) and for the reasoning."""

SLACK_TOKENS = 1024
"""More tokens than engines add around messages and tools."""


class WrittenCall(msgspec.Struct, frozen=True):
    """A tool call as the model wrote it; `arguments` should be JSON."""

    id: str
    name: str
    arguments: str


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, whichever API returned it.

    Attributes:
        calls: its tool calls; there should be exactly one.
        cut: whether it reached its limit.
        echo: the items of it that later requests send back.
    """

    text: str
    reasoning: str
    calls: list[WrittenCall]
    cut: bool
    echo: list[dict[str, Any]]


class MessageConversation(ResumableConversation, Generic[T]):
    """A conversation as messages.

    It is never queued, since its length in tokens is not known here.

    Args:
        send: the engine's method for the API.

    Attributes:
        items: everything said so far, as each request carries it.
        options: the other fields of a request, without the limit of the answer's length.
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
        # A token has at least one byte, so the number of bytes bounds the number of tokens.
        self._prompt_bound = _bytes(self.items) + _bytes(self.options["tools"]) + SLACK_TOKENS

    @staticmethod
    @abstractmethod
    def tool(tool: ToolSpec) -> dict[str, Any]:
        """Return a tool in the API's form."""

    @staticmethod
    @abstractmethod
    def effort(effort: str | None) -> dict[str, Any]:
        """Return the request's fields about reasoning, in the API's form."""

    @abstractmethod
    def read(self, reply: EngineResponse[T]) -> Said:
        """Return the answer in a response."""

    @abstractmethod
    def output(self, call_id: str, text: str) -> dict[str, Any]:
        """Return the item that answers a call."""

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
            call = self._check_body(said.calls, text)
        except InvalidCall as error:
            problem = error
        reply.record(status_of(problem), reply.usage)
        completion = Completion(
            text=text,
            reasoning=said.reasoning,
            call=call,
            problem=problem,
            usage=reply.usage,
            seconds=reply.seconds,
            request=reply.request,
            echo=said.echo,
            open_calls=[each.id for each in said.calls],
        )
        self.recall(completion)
        return completion

    def recall(self, completion: Completion) -> None:
        """See `Conversation`."""
        self._prompt_bound = completion.usage.prompt + completion.usage.completion + SLACK_TOKENS
        self.items += completion.echo
        self._open_calls = completion.open_calls

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        told = [self.output(call_id, text) for call_id in self._open_calls]
        told = told or [{"role": "user", "content": text}]
        self.items += told
        self._prompt_bound += _bytes(told)

    def _check_body(self, calls: list[WrittenCall], text: str) -> ToolCall:
        if len(calls) != 1:
            raise InvalidCall(f"the answer has {len(calls)} tool calls; make exactly one", text)
        try:
            arguments = msgspec.json.decode(calls[0].arguments or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, TypeError) as error:
            raise InvalidCall(f"the arguments are not readable: {error}", text) from error
        return checked_call(ToolCall(calls[0].name, arguments), self._tools, text)


def _bytes(value: Any) -> int:
    return len(json.dumps(value).encode())
