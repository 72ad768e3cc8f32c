"""Conversations: one protocol, two routes to an engine.

`ready` waits until the conversation may go on, `ask` sends what stands and returns one completion, `tell`
appends the reply to it, `close` ends it. A completion without a valid tool call is an ordinary result (the
model's mistake is data): its `problem` says what was wrong, and `tell` then answers it as a user would.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from serving.admission import Seat
from serving.cards import Role
from serving.engine.client import Engine, EngineResponse
from serving.errors import ContextOverflow, InvalidCall, TruncatedCall
from serving.meter import Status
from serving.tokens.grammar import structural_tag
from serving.tokens.tools import ToolCall, ToolSpec, checked_call
from serving.tokens.transcript import Transcript
from serving.usage import Usage


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model.

    Attributes:
        text: what it wrote after its reasoning, verbatim.
        call: the one tool call; `None` exactly when `problem` says why there is none.
        seconds: from sending the request to the answer's end.
        token_ids: what was generated (tokens route only).
        first_token_s: from its arrival in the engine to its first token, where the engine tells.
    """

    text: str
    reasoning: str
    call: ToolCall | None
    problem: InvalidCall | None
    usage: Usage
    seconds: float
    token_ids: list[int] = []
    first_token_s: float | None = None


class Conversation(ABC):
    """One agent's append-only exchange with a model."""

    async def ready(self) -> float:
        """Wait until the engine's cache has room for the conversation. Returns the seconds held back."""
        return 0.0

    @abstractmethod
    async def ask(self) -> Completion:
        """Let the model answer.

        Raises:
            ContextOverflow: the conversation no longer fits the model's context.
            RequestRefused, RequestFailed, EngineDead, SpendingCapReached: see `serving.errors`.
        """

    @abstractmethod
    def tell(self, text: str) -> None:
        """Append the reply to the last answer."""

    def rest(self) -> None:  # noqa: B027 - messages hold nothing to release
        """Give its place in the cache away until `ready`: it waits for another conversation now."""

    def close(self) -> None:  # noqa: B027 - as above
        """End it, and give its place in the cache away. A second call does nothing."""


class TokenConversation(Conversation):
    """A conversation as token ids, its calls constrained by a grammar of ours (`/v1/completions`).

    Attributes:
        transcript: all its ids so far.
        tag: the structural tag that each request carries.
        options: what else it carries beside the prompt and its length.
        replica: where it lives in the engine.
    """

    def __init__(
        self,
        engine: Engine,
        transcript: Transcript,
        role: Role,
        context: int,
        labels: dict[str, str],
        seat: Seat,
    ) -> None:
        self.transcript = transcript
        self.tag = structural_tag(transcript.grammar)
        self._engine = engine
        self._context = context
        self._labels = {**labels, "replica": str(seat.replica.number)}
        self.replica = seat.replica
        self._seat = seat
        self.options = {
            **sampling(role),
            "structured_outputs": {"structural_tag": self.tag},
            # A grammar leaves open which of the model's end tokens ends it; only one ends a turn.
            "logit_bias": {str(id_): -100 for id_ in transcript.other_ends},
        }

    async def ready(self) -> float:
        """See `Conversation`."""
        return await self._seat.enter(len(self.transcript.ids))

    def rest(self) -> None:
        """See `Conversation`."""
        self._seat.rest()

    async def ask(self) -> Completion:
        """See `Conversation`."""
        try:
            return await self._ask()
        finally:
            self._seat.pause()

    async def _ask(self) -> Completion:
        prompt = list(self.transcript.ids)
        room = self._context - len(prompt)
        if room < 1:
            raise ContextOverflow(
                f"the conversation has {len(prompt)} tokens; the model's context is {self._context}"
            )
        reply = await self._engine.complete(
            prompt,
            max_tokens=min(room, self.transcript.answer_tokens),
            labels=self._labels,
            replica=self.replica.address,
            cache=self.replica.ideal,
            **self.options,
        )
        ids: list[int] = reply.choice["token_ids"]
        answer = self.transcript.answer(ids)
        usage = msgspec.structs.replace(reply.usage, reasoning=answer.reasoning_tokens)
        if isinstance(answer.problem, TruncatedCall) and len(ids) >= room:
            reply.record("overflow", usage)
            raise ContextOverflow(
                f"the answer did not fit the {room} tokens left of the context of {self._context}"
            )
        reply.record(_status(answer.problem), usage, thought_cut=answer.thought_cut)
        return Completion(
            text=answer.text,
            reasoning=answer.reasoning,
            call=answer.call,
            problem=answer.problem,
            usage=usage,
            seconds=reply.seconds,
            token_ids=ids,
            first_token_s=reply.first_token_s,
        )

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        self.transcript.tell(text)

    def close(self) -> None:
        """See `Conversation`."""
        self._seat.leave()


class ChatConversation(Conversation):
    """A conversation as messages (`/v1/chat/completions`): hosted models, or vLLM's built-in tool calls.

    Calls are not constrained by us: an invalid one is counted and answered. Its length in tokens is not known
    here, so that it is never held back.
    """

    ANSWER_TOKENS = 1024
    """Room for a call's own text beside its strings and the thinking."""

    def __init__(
        self,
        engine: Engine,
        messages: list[dict[str, str]],
        tools: list[ToolSpec],
        role: Role,
        labels: dict[str, str],
    ) -> None:
        self.messages: list[dict[str, Any]] = [dict(message) for message in messages]
        self._engine = engine
        self._tools = {tool.name: tool for tool in tools}
        self._labels = labels
        self._max_tokens = role.thinking_tokens + role.string_tokens + self.ANSWER_TOKENS
        self._options = {
            **sampling(role),
            "tools": [tool.openai for tool in tools],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        }
        if role.reasoning_effort is not None:
            self._options["reasoning_effort"] = role.reasoning_effort
        self._open_calls: list[str] = []
        # A token stands for at least one byte, so bytes bound tokens.
        self._prompt_bound = _bytes(self.messages) + _bytes(self._options["tools"]) + 1024

    async def ask(self) -> Completion:
        """See `Conversation`."""
        reply = await self._engine.chat(
            self.messages,
            max_tokens=self._max_tokens,
            prompt_bound=self._prompt_bound,
            labels=self._labels,
            **self._options,
        )
        message = reply.choice["message"]
        calls = message.get("tool_calls") or []
        call, problem = None, None
        try:
            call = self._parse(reply, calls)
        except InvalidCall as error:
            problem = error
        reply.record(_status(problem), reply.usage)
        echo = {"role": "assistant", "content": message.get("content") or ""}
        if calls:
            echo["tool_calls"] = calls
        # vLLM's templates lose the thinking unless it is sent back under the name it came by.
        echo |= {key: message[key] for key in ("reasoning", "reasoning_content") if message.get(key)}
        self._append(echo)
        self._open_calls = [entry["id"] for entry in calls]
        self._prompt_bound = reply.usage.prompt + reply.usage.completion + 1024
        return Completion(
            text=message.get("content") or "".join(json.dumps(entry["function"]) for entry in calls),
            reasoning=message.get("reasoning") or message.get("reasoning_content") or "",
            call=call,
            problem=problem,
            usage=reply.usage,
            seconds=reply.seconds,
        )

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        for call_id in self._open_calls:
            self._append({"role": "tool", "tool_call_id": call_id, "content": text})
        if not self._open_calls:
            self._append({"role": "user", "content": text})

    def _append(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self._prompt_bound += _bytes(message)

    def _parse(self, reply: EngineResponse, calls: list[dict[str, Any]]) -> ToolCall:
        text = json.dumps([entry.get("function") for entry in calls])
        if reply.choice.get("finish_reason") == "length":
            raise TruncatedCall(f"the answer was cut after {reply.usage.completion} tokens; write less", text)
        if len(calls) != 1:
            raise InvalidCall(f"the answer holds {len(calls)} tool calls; make exactly one", text)
        function = calls[0].get("function") or {}
        try:
            arguments = msgspec.json.decode(function.get("arguments") or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, TypeError) as error:
            raise InvalidCall(f"the arguments are not readable: {error}", text) from error
        return checked_call(ToolCall(function.get("name", ""), arguments), self._tools, text)


def _status(problem: InvalidCall | None) -> Status:
    if problem is None:
        return "ok"
    return "truncated" if isinstance(problem, TruncatedCall) else "invalid"


def sampling(role: Role) -> dict[str, Any]:
    """What a request says of how the role's answers are drawn."""
    chosen = {"temperature": role.temperature, "top_p": role.top_p, "top_k": role.top_k}
    return {name: value for name, value in chosen.items() if value is not None}


def _bytes(value: Any) -> int:
    return len(json.dumps(value).encode())
