"""Conversations as messages: the provider writes the prompt and reads the model's tool calls.

Tool calls are not constrained here: an invalid one is counted, and answered with what is wrong.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, ClassVar

import msgspec

from serving.conversation import NEUTRAL, Completion, Conversation, sampling, status_of
from serving.engine.client import Engine
from serving.engine.one_try import Answer
from serving.errors import ContentRefused, InvalidCall, TruncatedCall
from serving.model_config import Role
from serving.tokens.tools import ToolCall, ToolSpec, checked_call
from serving.usage import Usage

ANSWER_TOKENS = 1024
"""Room for a call's own syntax (without its strings) and for the reasoning."""

SLACK_TOKENS = 1024
"""More tokens than engines add around messages and tools."""

Item = dict[str, Any]


class WrittenCall(msgspec.Struct, frozen=True):
    """A tool call as the model wrote it, with its arguments as text."""

    id: str
    name: str
    arguments: str

    def read(self) -> ToolCall:
        """Return the call, not yet checked against the tools. Raises `InvalidCall`."""
        try:
            return ToolCall(self.name, msgspec.json.decode(self.arguments or "{}", type=dict[str, Any]))
        except (ValueError, RecursionError) as error:
            raise InvalidCall(
                f"the arguments of {self.name} are not readable ({error}): {self.arguments!r:.2000}",
                self.arguments,
            ) from error


class WrittenAnswer(msgspec.Struct, frozen=True):
    """What an answer says, on any of these APIs.

    Attributes:
        items: what later requests send back of it, as it came.
        is_cut: whether its token limit ended it.
        is_filtered: whether the provider's content filter ended it.
    """

    text: str
    reasoning: str
    calls: list[WrittenCall]
    items: list[Item]
    is_cut: bool
    is_filtered: bool


class MessageAnswer(Answer):
    """The answer of one of these APIs."""

    def count_usage(self) -> Usage:
        """See `Answer`."""
        self.read(0)
        return super().count_usage()

    def read(self, turn: int) -> WrittenAnswer:
        """Return what it says; a call without an id gets one, unique for the turn's number. Raises
        `ValueError` if it does not fit the API."""
        raise NotImplementedError


class MessageConversation(Conversation):
    """A conversation as items: messages, and on some APIs calls and their outputs.

    It is never queued, since its length in tokens is not known here.

    Attributes:
        form: type of its answers.
        items_field: the request's field for the items.
        items: everything said so far, as each request carries it.
        options: the other fields of a request.
    """

    path: ClassVar[str]
    form: ClassVar[type[MessageAnswer]]
    items_field: ClassVar[str]

    def __init__(
        self,
        engine: Engine,
        messages: list[dict[str, str]],
        tools: list[ToolSpec],
        role: Role,
        labels: dict[str, str],
    ) -> None:
        self.items: list[Item] = [dict(message) for message in messages]
        self._max_tokens = role.string_tokens + ANSWER_TOKENS
        self._engine = engine
        self._tools = {tool.name: tool for tool in tools}
        self._labels = labels
        self._open_calls: list[str] = []
        template = {"chat_template_kwargs": role.template_options} if role.template_options else {}
        self.options: Item = {
            **({} if engine.hosted else NEUTRAL),
            **sampling(role),
            **template,
            "tool_choice": "required",
            "parallel_tool_calls": False,
            **self.own_options(tools, role),
        }
        # A token has at least one byte, so the number of bytes bounds the number of tokens.
        self._bytes = _bytes(self.items) + _bytes(self.options["tools"])
        self._prompt_bound = self._bytes + SLACK_TOKENS

    @abstractmethod
    def own_options(self, tools: list[ToolSpec], role: Role) -> Item:
        """Return the API's own fields of each request, such as `tools` and the limit of its answer."""

    @abstractmethod
    def reply_to(self, call_id: str, text: str) -> Item:
        """Return the item that replies to a call."""

    async def request_answer(self) -> Completion:
        """See `Conversation`."""
        seed = {} if self._engine.hosted else self.seed  # hosted models refuse it, or promise nothing
        reply = await self._engine.post(
            self.path,
            {**self.options, **seed, self.items_field: self.items},
            self.form,
            prompt_bound=self._prompt_bound,
            max_tokens=self._max_tokens,
            labels=self._labels,
        )
        written = reply.answer.read(self.turns)
        if written.is_filtered:
            reply.record("failed", reply.usage)
            raise ContentRefused("the provider's content filter ended the answer")
        text = written.text or "".join(
            json.dumps({"name": call.name, "arguments": call.arguments}) for call in written.calls
        )
        echo, open_calls = written.items, [call.id for call in written.calls]
        call: ToolCall | None = None
        problem: InvalidCall | None = None
        try:
            calls = [call.read() for call in written.calls]
        except InvalidCall as error:
            # Providers refuse a history with such a call: the reply quotes it.
            problem, calls, open_calls = InvalidCall(str(error), text), [], []
            echo = [{"role": "assistant", "content": written.text or "(a call that cannot be read)"}]
        try:
            if written.is_cut:
                tokens = reply.usage.completion
                raise TruncatedCall(f"the answer was cut after {tokens} tokens; write less", text)
            if problem is None and len(calls) != 1:
                raise InvalidCall(f"the answer has {len(calls)} tool calls; make exactly one", text)
            call = checked_call(calls[0], self._tools, text) if problem is None else None
        except InvalidCall as error:
            problem = error
        reply.record(status_of(problem), reply.usage)
        answer = Completion(
            text=text,
            reasoning=written.reasoning,
            call=call,
            problem=problem,
            usage=reply.usage,
            seconds=reply.seconds,
            request=reply.request,
            echo=echo,
            open_calls=open_calls,
        )
        self.recall(answer)
        return answer

    def recall(self, answer: Completion) -> None:
        """See `Conversation`."""
        self._prompt_bound = answer.usage.prompt + answer.usage.completion + SLACK_TOKENS
        self.bytes_per_token = max(1.0, self._bytes / max(answer.usage.prompt, 1))
        self._bytes += _bytes(answer.echo)
        self.items += answer.echo
        self._open_calls = answer.open_calls

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        text = text.encode("utf-8", "replace").decode()  # a skill may have created surrogates
        told = [self.reply_to(call_id, text) for call_id in self._open_calls]
        told = told or [{"role": "user", "content": text}]
        self.items += told
        self._bytes += _bytes(told)
        self._prompt_bound += _bytes(told)


def _bytes(value: Any) -> int:
    return len(json.dumps(value).encode())
