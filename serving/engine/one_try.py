"""The outcome of one try of a request: its answer, or why there is none and whether another try may help."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from serving.engine.http_client import HttpError, HttpResponse
from serving.errors import ContextOverflow, EngineDead, RequestRefused
from serving.meter import Status
from serving.usage import Number, Usage

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Details(msgspec.Struct):
    """Parts of a count."""

    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class Counts(msgspec.Struct):
    """The token counts of a request; `None` in the details: not reported."""

    prompt_tokens: Count
    completion_tokens: Count
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None


class Answer(msgspec.Struct, kw_only=True):
    """The answer of one API, with bounds for all values that are recorded. What does not fit is an
    infrastructure error of the engine.

    Attributes:
        error: set in a response that failed half-way.
    """

    usage: Counts
    error: Any = None

    @property
    def aborted(self) -> bool:
        """Whether the engine's shutdown truncated it."""
        return False

    def count_usage(self) -> Usage:
        """Return the token usage, with reasoning tokens if the engine counts them. Raises `ValueError` for
        impossible counts, and for other values that do not fit the API."""
        counts = self.usage
        usage = Usage(
            prompt=counts.prompt_tokens,
            cached=(counts.prompt_tokens_details or Details()).cached_tokens or 0,
            completion=counts.completion_tokens,
            reasoning=(counts.completion_tokens_details or Details()).reasoning_tokens or 0,
        )
        if usage.action < 0:
            raise ValueError(
                f"{usage.reasoning} reasoning tokens cannot be part of {usage.completion} generated"
            )
        return usage


class TokenLogprobs(msgspec.Struct):
    """Log-probabilities (natural logarithm) of the generated tokens, if a request asks for them."""

    token_logprobs: list[float | None] = []


class TokenChoice(msgspec.Struct):
    """The generated ids. The text is not used, but must be readable."""

    token_ids: list[TokenId] | None = None
    finish_reason: str | None = None
    text: str = ""
    logprobs: TokenLogprobs | None = None


class _Timing(msgspec.Struct):
    time_to_first_token_ms: Number | None = None


class TokenCompletion(Answer):
    """The answer of `/v1/completions`."""

    choices: Annotated[list[TokenChoice], msgspec.Meta(min_length=1)]
    metrics: _Timing | None = None

    @property
    def aborted(self) -> bool:
        """See `Answer`."""
        return self.choices[0].finish_reason == "abort"

    def count_usage(self) -> Usage:
        """See `Answer`."""
        ids, usage = self.choices[0].token_ids, super().count_usage()
        if ids is not None and len(ids) != usage.completion:
            raise ValueError(f"completion_tokens is {usage.completion}, but token_ids has {len(ids)}")
        return usage


T = TypeVar("T", bound=Answer)

Send = Callable[[], Awaitable[HttpResponse]]
"""One try of a request."""


@dataclass(eq=False)
class TryFailed(Exception):
    """This try failed; another may succeed.

    Attributes:
        status: its status in the ledger.
        after_s: the wait that the engine asked for.
        lost: whether the connection is gone, perhaps with the engine.
        timed_out: whether no answer came in time.
        usage: its cost, if known.
    """

    reason: str
    _: KW_ONLY
    status: Status = "failed"
    after_s: float | None = None
    lost: bool = False
    timed_out: bool = False
    usage: Usage | None = None


async def try_once(send: Send, form: type[T]) -> tuple[T, Usage]:
    """Send a request once. Returns the answer and its token counts.

    Args:
        form: type of the answer, with the fields that it must have.

    Raises:
        TryFailed: another try may succeed.
        ContextOverflow, RequestRefused: no other try would succeed.
        EngineDead: it refuses the API key, so no other request would succeed either.
    """
    try:
        response = await send()
    except HttpError as error:
        raise _error_of_http(error) from error
    if response.status != 200:
        raise _error_of_status(response)
    try:
        answer = msgspec.json.decode(_without_prompt(response.content), type=form)
        usage = answer.count_usage()
    except (ValueError, RecursionError) as error:
        raise _error_in_answer(response) or TryFailed(f"unusable answer: {error}") from error
    if answer.error and (failure := _error_in_answer(response)):  # it failed half-way
        raise failure
    if answer.aborted:
        reason = "the engine was shut down in the middle of the answer"
        raise TryFailed(reason, status="aborted", lost=True, usage=usage)
    return answer, usage


_ECHO = b'"prompt_token_ids":['


def _without_prompt(content: bytes) -> bytes:
    """Return an answer without the ids of its prompt, which vLLM sends back with the generated ones.

    The decoder needs 2 ms to read 250,000 of them. No string can contain the pattern of the search, since
    JSON escapes quotation marks in strings.
    """
    begin = content.find(_ECHO)
    end = content.find(b"]", begin)
    if begin < 0 or end < 0:
        return content
    return content[: begin + len(_ECHO)] + content[end:]


def _error_of_http(error: HttpError) -> Exception:
    """Return the exception for a request without a response."""
    match error.failure:
        case "not sendable":
            return RequestRefused(str(error))
        case "refused" | "not connected":
            return TryFailed(f"connection lost: {error}", lost=True, usage=Usage())
        case "timed out":
            return TryFailed(str(error), status="aborted", lost=True, timed_out=True)
        case "unusable":
            return TryFailed(str(error))
    return TryFailed(f"connection lost: {error}", lost=True)


FILTER_CODES = ("content_filter", "content_policy_violation", "invalid_prompt")
"""Codes of errors with which providers refuse a prompt's content."""

# A prompt of exactly the maximum length leaves no token for an answer. vLLM words this case differently, and
# differently on each API.
_OVERFLOW = re.compile(
    "maximum context length|max_tokens must be at least 1|exceeds the max_model_len|context window"
)


def _error_in_answer(response: HttpResponse) -> Exception | None:
    """Return the exception for an error that a response of status 200 has, as gateways write it; `None` if it
    has none."""
    try:
        body = response.json()
    except ValueError:
        return None
    if not isinstance(body, dict) or not body.get("error"):
        return None
    text, code = _read_error(response)
    return ContextOverflow(text) if _overflows(text, code) else TryFailed(f"the engine failed: {text}")


def _error_of_status(response: HttpResponse) -> Exception:
    """Return the exception for an HTTP status."""
    status, (text, code) = response.status, _read_error(response)
    if status == 429:
        after_s = 5.0  # if the engine asks for no wait, or with a date
        with suppress(KeyError, ValueError):
            after_s = min(300.0, max(0.1, float(response.headers["retry-after"])))
        return TryFailed(f"rate limit: {text}", after_s=after_s, usage=Usage())
    if status in (503, 529):  # the queue is full: refused before any work
        return TryFailed(f"status {status}: {text}", usage=Usage())
    if status >= 500 or status in (408, 409):
        # While its core dies, vLLM answers 500 for seconds before it refuses connections.
        return TryFailed(f"status {status}: {text}", lost=status == 500)
    if status == 401:
        return EngineDead(
            f"the engine refuses the API key ({text}): correct the variable that serving.api_key_env or the"
            " model config's api_key_env names, and rerun the command to resume"
        )
    if status == 400 and _overflows(text, code):
        return ContextOverflow(text)
    return RequestRefused(f"status {status}: {text}", status, is_filtered=code in FILTER_CODES)


def _overflows(text: str, code: object) -> bool:
    return code == "context_length_exceeded" or _OVERFLOW.search(text) is not None


def _read_error(response: HttpResponse) -> tuple[str, object]:
    """Return an error's message and code, from any of the usual forms of a body."""
    try:
        body = response.json()
    except ValueError:
        body = response.text
    error = body.get("error", body) if isinstance(body, dict) else body
    text, code = (error.get("message"), error.get("code")) if isinstance(error, dict) else (error, None)
    return " ".join(str(text or response.reason).split())[:500], code
