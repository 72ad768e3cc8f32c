"""Conversations: one protocol for all APIs of an engine (`serving.apis`).

`ready` waits until the conversation may continue. `ask` returns one completion, a recorded one or the
engine's. `tell` appends the reply. `close` ends it. A completion without a valid tool call is an ordinary
result, since the model's mistakes are data: its `problem` says what was wrong, and the next reply answers as
a user would.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from serving.errors import InvalidCall, TruncatedCall
from serving.meter import Status
from serving.model_config import Role
from serving.tokens.tools import ToolCall
from serving.usage import Usage


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model.

    Attributes:
        text: the text after its reasoning, verbatim.
        call: the one tool call; `None` exactly when `problem` says why there is none.
        seconds: time from sending the request to the end of the answer.
        request: id of its request in the ledger; empty if there was none.
        token_ids: the generated ids (completions API only).
        echo: the items of it that later requests send back (chat API).
        open_calls: ids of its tool calls, which the reply answers (same API).
        overflows: whether it did not fit the rest of the context; `text` is the part that did.
    """

    text: str
    reasoning: str
    call: ToolCall | None
    problem: InvalidCall | None
    usage: Usage
    seconds: float
    request: str = ""
    token_ids: list[int] = []
    echo: list[dict[str, Any]] = []
    open_calls: list[str] = []
    overflows: bool = False


class Conversation(ABC):
    """One agent's append-only exchange with a model."""

    seed_key = ""
    """Names it among all conversations of a run, for the seeds of its requests. Empty: they carry none."""
    turns = 0
    """Number of answers so far."""
    bytes_per_token = 1.0
    """Bytes of a prompt for each of its tokens, by the provider's count so far (APIs of messages)."""
    recorded: Sequence[Completion] = ()
    """Its first answers, if it had begun in another process; the engine is not asked for them again."""

    @property
    def seed(self) -> dict[str, int]:
        """The next request's field for its seed."""
        if not self.seed_key:
            return {}
        digest = hashlib.sha256(f"{self.seed_key}/{self.turns}".encode()).digest()
        return {"seed": int.from_bytes(digest[:4], "big")}

    async def ready(self) -> float:
        """Wait until the engine's cache has room for the conversation. Returns the seconds queued.

        Without it a request is never queued; benchmarks of the engine rely on that.
        """
        return 0.0

    @property
    def is_repeating(self) -> bool:
        """Whether the next answer is a recorded one."""
        return self.turns < len(self.recorded)

    async def ask(self) -> Completion:
        """Let the model answer, or return the next recorded answer.

        Raises:
            ContextOverflow: the conversation no longer fits the model's context.
            RequestRefused, RequestFailed, EngineDead, SpendingCapReached: see `serving.errors`.
        """
        if self.is_repeating:
            answer = self.recorded[self.turns]
            self.recall(answer)
        else:
            answer = await self.request_answer()
        self.turns += 1
        return answer

    @abstractmethod
    async def request_answer(self) -> Completion:
        """Ask the engine, and append its answer; see `ask`."""

    @abstractmethod
    def tell(self, text: str) -> None:
        """Append the reply to the last answer."""

    def recall(self, answer: Completion) -> None:
        """Append a recorded answer. Only conversations with an engine can."""
        raise NotImplementedError

    def rest(self) -> None:  # noqa: B027 - messages hold nothing to release
        """Give up the slot in the cache until `ready`: the conversation now waits for another one."""

    def close(self) -> None:  # noqa: B027 - as above
        """End the conversation and release its slot in the cache. A second call does nothing."""


def status_of(problem: InvalidCall | None) -> Status:
    """Return the ledger's status for an answer with this problem."""
    if problem is None:
        return "ok"
    return "truncated" if isinstance(problem, TruncatedCall) else "invalid"


NEUTRAL = {
    **{"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
    **{"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
}
"""Sampling fields without effect. Fields that a request leaves out may be set by the weights'
`generation_config.json`, on a server that someone else started."""


def sampling(role: Role) -> dict[str, Any]:
    """Return the request's fields for the role's sampling."""
    chosen = {"temperature": role.temperature, "top_p": role.top_p, "top_k": role.top_k}
    return {name: value for name, value in chosen.items() if value is not None}
