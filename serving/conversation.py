"""Conversations: one protocol, two routes to an engine.

`ready` waits until the conversation may go on, `ask` sends what stands and returns one completion, `tell`
appends the reply to it, `close` ends it. A completion without a valid tool call is an ordinary result (the
model's mistake is data): its `problem` says what was wrong, and `tell` then answers it as a user would.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from serving.admission import Seat
from serving.cards import Role
from serving.engine.client import Engine, Reply
from serving.engine.metrics import CacheConfig
from serving.errors import ContextOverflow, InvalidCall, TruncatedCall
from serving.meter import Status
from serving.tokens.formats import ParsedCall
from serving.tokens.grammar import structural_tag
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import Transcript
from serving.usage import Usage


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model.

    Attributes:
        text: what it wrote after its reasoning, verbatim.
        call: the one tool call; `None` exactly when `problem` says why there is none.
        seconds: from sending the request to the answer's end.
        token_ids: what was generated (tokens route only).
    """

    text: str
    reasoning: str
    call: ParsedCall | None
    problem: InvalidCall | None
    usage: Usage
    seconds: float
    token_ids: list[int] = []


class Conversation(Protocol):
    """One agent's append-only exchange with a model."""

    async def ready(self) -> float:
        """Wait until the engine's cache has room for the conversation. Returns the seconds held back."""

    async def ask(self) -> Completion:
        """Let the model answer.

        Raises:
            ContextOverflow: the conversation no longer fits the model's context.
            RequestRefused, RequestFailed, EngineDead, SpendingCapReached: see `serving.errors`.
        """

    def tell(self, text: str) -> None:
        """Append the reply to the last answer."""

    def close(self) -> None:
        """End it, and give its place in the cache away. A second call does nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation lives in an engine.

    Attributes:
        replica: the engine's replica that it stays with.
        address: the same for requests; `None` where there is one replica only.
        cache: that replica's cache, where it is known.
        shared: first tokens of the conversation that were sent alone before.
        seat: its place in the cache; `None` where nobody is held back.
        on_leave: called once at its end.
    """

    replica: int = 0
    address: int | None = None
    cache: CacheConfig | None = None
    shared: int = 0
    seat: Seat | None = None
    on_leave: Callable[[], None] = lambda: None


class TokenConversation:
    """A conversation as token ids, its calls constrained by a grammar of ours (`/v1/completions`).

    Attributes:
        transcript: all its ids so far.
        tag: the structural tag that each request carries.
        options: what else it carries beside the prompt and its length.
        place: where it lives in the engine.
    """

    def __init__(
        self,
        engine: Engine,
        transcript: Transcript,
        role: Role,
        context: int,
        labels: dict[str, str],
        place: Place = Place(),
    ) -> None:
        self.transcript = transcript
        self.tag = structural_tag(transcript.grammar)
        self._engine = engine
        self._context = context
        self._labels = {**labels, "replica": str(place.replica)}
        self.place = place
        self._open = True
        self._last = (0, 0)  # tokens of the last prompt, and of the answer to it
        self.options = {
            **sampling(role),
            "structured_outputs": {"structural_tag": self.tag},
            # A grammar leaves open which of the model's end tokens ends it; only one ends a turn.
            "logit_bias": {str(id_): -100 for id_ in transcript.other_ends},
        }

    async def ready(self) -> float:
        """See `Conversation`."""
        seat = self.place.seat
        return await seat.enter(len(self.transcript.ids)) if seat is not None else 0.0

    async def ask(self) -> Completion:
        """See `Conversation`."""
        try:
            return await self._ask()
        finally:
            if self.place.seat is not None:
                self.place.seat.pause()

    async def _ask(self) -> Completion:
        prompt = list(self.transcript.ids)
        room = self._context - len(prompt)
        if room < 1:
            raise ContextOverflow(
                f"the conversation has {len(prompt)} tokens; the model's context is {self._context}"
            )
        most = min(room, self.transcript.answer_tokens)
        cache, (last_prompt, last_answer) = self.place.cache, self._last
        reply = await self._engine.complete(
            prompt,
            max_tokens=most,
            labels=self._labels,
            replica=self.place.address,
            cacheable=cache.most_cached(self.place.shared, last_prompt, last_answer, len(prompt))
            if cache
            else None,
            **self.options,
        )
        ids: list[int] = reply.choice["token_ids"]
        self._last = (len(prompt), len(ids))
        answer = self.transcript.answer(ids)
        usage = msgspec.structs.replace(reply.usage, reasoning=answer.reasoning_tokens)
        if isinstance(answer.problem, TruncatedCall) and len(ids) >= room:
            reply.record("overflow", usage)
            raise ContextOverflow(
                f"the answer did not fit the {room} tokens left of the context of {self._context}"
            )
        reply.record(_status(answer.problem), usage)
        return Completion(
            text=answer.text,
            reasoning=answer.reasoning,
            call=answer.call,
            problem=answer.problem,
            usage=usage,
            seconds=reply.seconds,
            token_ids=ids,
        )

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        self.transcript.tell(text)

    def forget_cache(self) -> None:
        """Nothing of it is in the engine's cache any more."""
        self._last = (0, 0)
        self.place = replace(self.place, shared=0)

    def close(self) -> None:
        """See `Conversation`."""
        if self._open:
            self._open = False
            if self.place.seat is not None:
                self.place.seat.leave()
            self.place.on_leave()


class ChatConversation:
    """A conversation as messages (`/v1/chat/completions`): hosted models, or vLLM's built-in tool calls.

    Calls are not constrained by us: an invalid one is counted and answered.
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

    async def ready(self) -> float:
        """See `Conversation`: its length is not known here, so that nothing is held back."""
        return 0.0

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

    def close(self) -> None:
        """See `Conversation`."""

    def _append(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self._prompt_bound += _bytes(message)

    def _parse(self, reply: Reply, calls: list[dict[str, Any]]) -> ParsedCall:
        text = json.dumps([entry.get("function") for entry in calls])
        if reply.choice.get("finish_reason") == "length":
            raise TruncatedCall(f"the answer was cut after {reply.usage.completion} tokens; write less", text)
        if len(calls) != 1:
            raise InvalidCall(f"the answer holds {len(calls)} tool calls; make exactly one", text)
        function = calls[0].get("function") or {}
        name, written = function.get("name"), function.get("arguments") or "{}"
        if name not in self._tools:
            raise InvalidCall(f"there is no tool {name!r}; tools: {', '.join(self._tools)}", text)
        try:
            arguments = msgspec.json.decode(written, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, TypeError) as error:
            raise InvalidCall(f"the arguments are not readable: {error}", text) from error
        if problem := self._tools[name].problem_with(arguments):
            raise InvalidCall(f"{name}: {problem}", text)
        return ParsedCall(name, arguments)


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
