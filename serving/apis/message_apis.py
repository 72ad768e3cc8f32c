"""The two APIs that send messages and tools: chat completions and responses.

Tool calls are not constrained here: an invalid one is counted, and answered with what is wrong.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from serving.conversation import Completion, Conversation, sampling, status_of
from serving.engine.answers import ChatCompletion, Item, Response
from serving.engine.client import Engine
from serving.errors import InvalidCall, RequestRefused, TruncatedCall
from serving.model_config import Role
from serving.tokens.tools import ToolCall, ToolSpec, checked_call

ANSWER_TOKENS = 1024
"""Room for a call's own syntax (without its strings) and for the reasoning."""

SLACK_TOKENS = 1024
"""More tokens than engines add around messages and tools."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, whichever API returned it.

    Attributes:
        calls: its tool calls; there should be exactly one.
        cut: whether it reached its limit.
        echo: the items of it that later requests send back.
    """

    text: str
    reasoning: str
    calls: list[Item]
    cut: bool
    echo: list[dict[str, Any]]


class ChatConversation(Conversation):
    """A conversation as messages, on `/v1/chat/completions`: hosted models, or vLLM's built-in tool calls.

    It is never queued, since its length in tokens is not known here.

    Attributes:
        items: everything said so far, as each request carries it.
        options: the other fields of a request, without the limit of the answer's length.
    """

    path = "chat/completions"
    form: type[ChatCompletion | Response] = ChatCompletion
    items_field, limit_field = "messages", "max_completion_tokens"

    def __init__(
        self,
        engine: Engine,
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
        self._engine = engine
        self._tools = {tool.name: tool for tool in tools}
        self._labels = labels
        self._max_tokens = role.string_tokens + ANSWER_TOKENS
        self._open_calls: list[str] = []
        # A token has at least one byte, so the number of bytes bounds the number of tokens.
        self._prompt_bound = _bytes(self.items) + _bytes(self.options["tools"]) + SLACK_TOKENS

    def tool(self, tool: ToolSpec) -> dict[str, Any]:
        """Return a tool in the API's form."""
        return tool.openai

    def effort(self, effort: str | None) -> dict[str, Any]:
        """Return the request's fields about reasoning, in the API's form."""
        return {} if effort is None else {"reasoning_effort": effort}

    def read(self, answer: Any) -> Said:
        """Return what the model said. Raises `RequestRefused` if the answer has no message."""
        if (message := answer.choices[0].message) is None:
            raise RequestRefused(f"the engine at {self._engine.endpoint} returns no message")
        text, calls = message.get("content") or "", message.get("tool_calls") or []
        echo = {"role": "assistant", "content": text}
        if calls:
            echo["tool_calls"] = calls
        # vLLM's templates lose the reasoning unless it is sent back under the name that it arrived with.
        echo |= {key: message[key] for key in ("reasoning", "reasoning_content") if message.get(key)}
        functions = [(entry["id"], entry.get("function") or {}) for entry in calls]
        return Said(
            text=text,
            reasoning=message.get("reasoning") or message.get("reasoning_content") or "",
            calls=[
                Item(
                    "function_call",
                    call_id=call_id,
                    name=function.get("name", ""),
                    arguments=function.get("arguments") or "",
                )
                for call_id, function in functions
            ],
            cut=answer.choices[0].finish_reason == "length",
            echo=[echo],
        )

    def output(self, call_id: str, text: str) -> dict[str, Any]:
        """Return the item that answers a call."""
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    async def ask(self) -> Completion:
        """See `Conversation`."""
        reply = await self._engine.send_messages(
            self.path,
            self.form,
            {**self.options, self.items_field: self.items, self.limit_field: self._max_tokens},
            prompt_bound=self._prompt_bound,
            max_tokens=self._max_tokens,
            labels=self._labels,
        )
        try:
            said = self.read(reply.answer)
        except RequestRefused:
            reply.record("failed", reply.usage)
            raise
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
            open_calls=[each.call_id for each in said.calls],
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

    def _check_body(self, calls: list[Item], text: str) -> ToolCall:
        if len(calls) != 1:
            raise InvalidCall(f"the answer has {len(calls)} tool calls; make exactly one", text)
        try:
            arguments = msgspec.json.decode(calls[0].arguments or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, TypeError) as error:
            raise InvalidCall(f"the arguments are not readable: {error}", text) from error
        return checked_call(ToolCall(calls[0].name, arguments), self._tools, text)


class ResponsesConversation(ChatConversation):
    """A conversation on `/v1/responses`: hosted models that reason between calls.

    The provider stores nothing: each request carries the whole conversation, with every item of earlier
    answers unchanged. These items include the reasoning (encrypted by OpenAI, in the clear by vLLM).
    """

    path = "responses"
    form = Response
    items_field, limit_field = "input", "max_output_tokens"

    def tool(self, tool: ToolSpec) -> dict[str, Any]:
        """See `ChatConversation`."""
        # Without `strict`, OpenAI makes optional parameters required.
        return {"type": "function", **tool.openai["function"], "strict": tool.strict}

    def effort(self, effort: str | None) -> dict[str, Any]:
        """See `ChatConversation`."""
        # Sent even without an effort: OpenAI does not recognize an item that it neither stored nor encrypted.
        whole = {"store": False, "include": ["reasoning.encrypted_content"]}
        return whole if effort is None else whole | {"reasoning": {"effort": effort}}

    def read(self, answer: Response) -> Said:
        """See `ChatConversation`."""
        items = answer.items()
        # Trailing reasoning must not be sent back: OpenAI requires the item that followed it.
        last = max((n for n, item in enumerate(items) if item.type != "reasoning"), default=-1)
        return Said(
            text=_text(items, "message"),
            reasoning=_text(items, "reasoning"),
            calls=[item for item in items if item.type == "function_call"],
            cut=answer.cut,
            echo=answer.output[: last + 1],
        )

    def output(self, call_id: str, text: str) -> dict[str, Any]:
        """See `ChatConversation`."""
        return {"type": "function_call_output", "call_id": call_id, "output": text}


def _text(items: list[Item], kind: str) -> str:
    """Return the text of all items of a kind, one paragraph for each part."""
    parts = [part for item in items if item.type == kind for part in (item.content or item.summary or [])]
    return "\n\n".join(part.text or part.refusal for part in parts)


def _bytes(value: Any) -> int:
    return len(json.dumps(value).encode())
