"""Conversations: one protocol for every route to an engine (`serving.apis`).

`ready` waits until the conversation may go on, `ask` sends what stands and returns one completion, `tell`
appends the reply to it, `close` ends it. A completion without a valid tool call is an ordinary result (the
model's mistake is data): its `problem` says what was wrong, and `tell` then answers it as a user would.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from serving.errors import ContextOverflow, InvalidCall, TruncatedCall
from serving.meter import Status
from serving.model_config import Role
from serving.tokens.tools import ToolCall
from serving.usage import Usage


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model.

    Attributes:
        text: what it wrote after its reasoning, verbatim.
        call: the one tool call; `None` exactly when `problem` says why there is none.
        seconds: from sending the request to the answer's end.
        token_ids: what was generated (completions API only).
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


class AnswerOverflow(ContextOverflow):
    """The answer did not fit what was left of the context; `completion` is what there was room for."""

    def __init__(self, message: str, completion: Completion) -> None:
        super().__init__(message)
        self.completion = completion


class Conversation(ABC):
    """One agent's append-only exchange with a model."""

    async def ready(self) -> float:
        """Wait until the engine's cache has room for the conversation. Returns the seconds queued."""
        return 0.0

    @abstractmethod
    async def ask(self) -> Completion:
        """Let the model answer.

        Raises:
            ContextOverflow: the conversation no longer fits the model's context; an `AnswerOverflow` where
                its last answer did not.
            RequestRefused, RequestFailed, EngineDead, SpendingCapReached: see `serving.errors`.
        """

    @abstractmethod
    def tell(self, text: str) -> None:
        """Append the reply to the last answer."""

    def rest(self) -> None:  # noqa: B027 - messages hold nothing to release
        """Give its place in the cache away until `ready`: it waits for another conversation now."""

    def close(self) -> None:  # noqa: B027 - as above
        """End it, and give its place in the cache away. A second call does nothing."""


def status_of(problem: InvalidCall | None) -> Status:
    """How an answer with this problem stands in the ledger."""
    if problem is None:
        return "ok"
    return "truncated" if isinstance(problem, TruncatedCall) else "invalid"


def sampling(role: Role) -> dict[str, Any]:
    """What a request says of how the role's answers are drawn."""
    chosen = {"temperature": role.temperature, "top_p": role.top_p, "top_k": role.top_k}
    return {name: value for name, value in chosen.items() if value is not None}
