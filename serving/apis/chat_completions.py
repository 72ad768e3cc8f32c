"""The chat completions API (`/v1/chat/completions`): hosted models, or vLLM's built-in tool calls.

Tool calls are not constrained here: an invalid one is counted, and answered with what is wrong.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from serving.conversation import NEUTRAL, Completion, Conversation, sampling, status_of
from serving.engine.client import Engine
from serving.errors import InvalidCall, RequestRefused, TruncatedCall
from serving.model_config import Role
from serving.tokens.tools import ToolCall, ToolSpec, checked_call

ANSWER_TOKENS = 1024
"""Room for a call's own syntax (without its strings) and for the reasoning."""

SLACK_TOKENS = 1024
"""More tokens than engines add around messages and tools."""


class ChatConversation(Conversation):
    """A conversation as messages.

    It is never queued, since its length in tokens is not known here.

    Attributes:
        messages: everything said so far, as each request carries it.
        options: the other fields of a request.
    """

    def __init__(
        self,
        engine: Engine,
        messages: list[dict[str, str]],
        tools: list[ToolSpec],
        role: Role,
        labels: dict[str, str],
    ) -> None:
        self.messages: list[dict[str, Any]] = [dict(message) for message in messages]
        self._max_tokens = role.string_tokens + ANSWER_TOKENS
        extra = {"reasoning_effort": role.reasoning_effort, "chat_template_kwargs": role.template_options}
        self.options = {
            **({} if engine.hosted else NEUTRAL),
            **sampling(role),
            "tools": [tool.openai for tool in tools],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_completion_tokens": self._max_tokens,
            **{name: value for name, value in extra.items() if value},
        }
        self._engine = engine
        self._tools = {tool.name: tool for tool in tools}
        self._labels = labels
        self._open_calls: list[str] = []
        # A token has at least one byte, so the number of bytes bounds the number of tokens.
        self._prompt_bound = _bytes(self.messages) + _bytes(self.options["tools"]) + SLACK_TOKENS

    async def request_answer(self) -> Completion:
        """See `Conversation`."""
        seed = {} if self._engine.hosted else self.seed  # hosted models refuse it, or promise nothing
        reply = await self._engine.chat(
            {**self.options, **seed, "messages": self.messages},
            prompt_bound=self._prompt_bound,
            max_tokens=self._max_tokens,
            labels=self._labels,
        )
        choice = reply.answer.choices[0]
        if (message := choice.message) is None:
            reply.record("failed", reply.usage)
            raise RequestRefused(f"the engine at {self._engine.endpoint} returns no message")
        said, calls = message.get("content") or "", message.get("tool_calls") or []
        echo = {"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})}
        # vLLM's templates lose the reasoning unless it is sent back under the name that it arrived with.
        echo |= {key: message[key] for key in ("reasoning", "reasoning_content") if message.get(key)}
        functions = [entry.get("function") or {} for entry in calls]
        text = said or "".join(
            json.dumps({"name": function.get("name", ""), "arguments": function.get("arguments") or ""})
            for function in functions
        )
        call, problem = None, None
        try:
            if choice.finish_reason == "length":
                tokens = reply.usage.completion
                raise TruncatedCall(f"the answer was cut after {tokens} tokens; write less", text)
            call = self._read_call(functions, text)
        except InvalidCall as error:
            problem = error
        reply.record(status_of(problem), reply.usage)
        answer = Completion(
            text=text,
            reasoning=message.get("reasoning") or message.get("reasoning_content") or "",
            call=call,
            problem=problem,
            usage=reply.usage,
            seconds=reply.seconds,
            request=reply.request,
            echo=[echo],
            open_calls=[entry["id"] for entry in calls],
        )
        self.recall(answer)
        return answer

    def recall(self, answer: Completion) -> None:
        """See `Conversation`."""
        self._prompt_bound = answer.usage.prompt + answer.usage.completion + SLACK_TOKENS
        self.messages += answer.echo
        self._open_calls = answer.open_calls

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        told: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": call_id, "content": text} for call_id in self._open_calls
        ]
        told = told or [{"role": "user", "content": text}]
        self.messages += told
        self._prompt_bound += _bytes(told)

    def _read_call(self, functions: list[dict[str, Any]], text: str) -> ToolCall:
        if len(functions) != 1:
            raise InvalidCall(f"the answer has {len(functions)} tool calls; make exactly one", text)
        (function,) = functions
        try:
            arguments = msgspec.json.decode(function.get("arguments") or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, TypeError) as error:
            raise InvalidCall(f"the arguments are not readable: {error}", text) from error
        return checked_call(ToolCall(function.get("name", ""), arguments), self._tools, text)


def _bytes(value: Any) -> int:
    return len(json.dumps(value).encode())
