"""The forms of an engine's answers, with the fields that must be present."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from serving.usage import Usage


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Counts(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None

    def usage(self) -> Usage:
        """Return the token usage, with reasoning tokens if the engine counts them. Raises `ValueError` for
        impossible counts."""
        return Usage(
            prompt=self.prompt_tokens,
            cached=(self.prompt_tokens_details or _Details()).cached_tokens or 0,
            completion=self.completion_tokens or 0,
            reasoning=(self.completion_tokens_details or _Details()).reasoning_tokens or 0,
        )


class TokenLogprobs(msgspec.Struct):
    """Log-probabilities (natural logarithm) of the generated tokens, if a request asks for them."""

    token_logprobs: list[float | None] = []


class TokenChoice(msgspec.Struct):
    """The generated ids. The text is not used, but must be readable."""

    token_ids: list[int] | None = None
    finish_reason: str | None = None
    text: str = ""
    logprobs: TokenLogprobs | None = None


class _Timing(msgspec.Struct):
    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None


class TokenCompletion(msgspec.Struct):
    """The answer of `/v1/completions`."""

    choices: Annotated[list[TokenChoice], msgspec.Meta(min_length=1)]
    usage: _Counts
    metrics: _Timing | None = None
    error: Any = None

    @property
    def aborted(self) -> bool:
        """Whether the engine's shutdown truncated it."""
        return self.choices[0].finish_reason == "abort"

    @property
    def last_token_s(self) -> float | None:
        """Seconds from the request's arrival in the engine to its last token, if the engine reports them."""
        timing = self.metrics or _Timing()
        queued_ms, first_ms, rest_ms = (
            timing.queue_time_ms,
            timing.time_to_first_token_ms,
            timing.generation_time_ms,
        )
        if queued_ms is None or first_ms is None or rest_ms is None:
            return None
        return (queued_ms + first_ms + rest_ms) / 1000


class ChatChoice(msgspec.Struct):
    """The model's message, as the plain JSON that later requests send back."""

    message: dict[str, Any] | None = None
    finish_reason: str | None = None


class ChatCompletion(msgspec.Struct):
    """The answer of `/v1/chat/completions`."""

    choices: Annotated[list[ChatChoice], msgspec.Meta(min_length=1)]
    usage: _Counts
    error: Any = None

    @property
    def aborted(self) -> bool:
        """See `TokenCompletion`."""
        return self.choices[0].finish_reason == "abort"


Answer = TokenCompletion | ChatCompletion
"""Either form of answer; each has `usage`, `error` and `aborted`."""
