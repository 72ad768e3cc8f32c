"""Token usage of one request, as the engine reports it, and its cost."""

from __future__ import annotations

import operator
from typing import Annotated, Self

import msgspec
from msgspec.structs import astuple

MAX_INTEGER = 2**53
"""Integers up to this one are exact as floats, too."""

MAX_TIMESTAMP = 2**36
"""Unix seconds in the year 4147, which every calendar can show."""

# Numbers in records are finite, and so small that sums and squares of them stay finite.
Integer = Annotated[int, msgspec.Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Number = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
Timestamp = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIMESTAMP)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]


class Sums(msgspec.Struct, frozen=True):
    """Numbers that are added and subtracted field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, earlier: Self) -> Self:
        return type(self)(*map(operator.sub, astuple(self), astuple(earlier)))


class Usage(Sums, frozen=True):
    """Tokens of one request or a sum of many.

    Attributes:
        prompt: all prompt tokens, including cached ones.
        cached: prompt tokens that the engine took from its prefix cache.
        completion: generated tokens, including reasoning.
        reasoning: generated tokens up to the end of the thinking region, or of plain text before a call.
    """

    prompt: Tokens = 0
    cached: Tokens = 0
    completion: Tokens = 0
    reasoning: Tokens = 0

    def __post_init__(self) -> None:
        if self.cached > self.prompt:
            raise ValueError(f"{self.cached} tokens of a prompt of {self.prompt} cannot be cached")

    @property
    def uncached(self) -> int:
        """Prompt tokens that had to be computed."""
        return self.prompt - self.cached

    @property
    def action(self) -> int:
        """Generated tokens that are not reasoning."""
        return self.completion - self.reasoning

    @property
    def attention(self) -> float:
        """Of one request: its output tokens times their mean context in thousands of tokens."""
        return self.completion * (self.prompt + self.completion / 2) / 1000

    @property
    def was_sent(self) -> bool:
        """Of one request: whether an engine received it, since each prompt has a token."""
        return self.prompt > 0


class Counters(Sums, frozen=True):
    """Tokens since the server's start, summed over its replicas.

    Attributes:
        prompt: prompt tokens of every request that reached its first token, including cached ones.
        cached: prompt tokens taken from the prefix cache.
        generated: tokens produced, including those of aborted requests.
    """

    prompt: Integer = 0
    cached: Integer = 0
    generated: Integer = 0

    @classmethod
    def of(cls, usage: Usage) -> Counters:
        """Return what the engine counts for a request, or for a sum of requests."""
        return cls(usage.prompt, usage.cached, usage.completion)


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A price list in USD per million tokens. Measured lists have two more terms.

    Attributes:
        requests: USD per million requests, besides their tokens.
        attention: USD per million output tokens for each thousand tokens of their context.
    """

    uncached: Number
    cached: Number
    output: Number
    requests: Number = 0
    attention: Number = 0

    def cost(self, usage: Usage) -> float:
        """Return the USD of one request (paper, Appendix A.3): p_in * uncached + p_cache * cached + p_out *
        output, and the two terms of measured lists. A request that was never sent costs nothing."""
        tokens = self.uncached * usage.uncached + self.cached * usage.cached + self.output * usage.completion
        return (tokens + self.attention * usage.attention + self.requests * usage.was_sent) / 1e6
