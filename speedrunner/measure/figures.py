"""What an engine's own metrics say of some time: seconds to first tokens, seconds of inference."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from serving.engine.endpoint import Endpoint
from serving.engine.metrics import Counters

_NAMES = {
    "vllm:time_to_first_token_seconds_sum",
    "vllm:time_to_first_token_seconds_count",
    "vllm:request_inference_time_seconds_sum",
}


@dataclass(frozen=True)
class Figures:
    """The engine's figures, or what they grew by; `None` where it shows none, or others used it meanwhile.

    Attributes:
        first_token_s: seconds from arrival to first token, summed over requests.
        first_tokens: how many these are.
        inference_s: seconds from the start of a request's work to its last token, summed over requests.
        tokens: the engine's counters.
        foreign: whether others used the engine meanwhile.
    """

    first_token_s: float | None = 0.0
    first_tokens: float | None = 0.0
    inference_s: float | None = 0.0
    tokens: Counters = field(default_factory=Counters)
    foreign: bool = False

    @property
    def first_token_mean_s(self) -> float | None:
        """Mean seconds to the first token."""
        return self.first_token_s / self.first_tokens if self.first_token_s and self.first_tokens else None

    def since(self, before: Figures, *, first_tokens_since: Figures, ours: Counters) -> Figures:
        """What was added since `before` (first tokens: since another moment), when we used `ours`."""
        tokens = self.tokens - before.tokens
        if tokens != ours:
            return Figures(None, None, None, tokens, foreign=True)
        return Figures(
            first_token_s=_less(self.first_token_s, first_tokens_since.first_token_s),
            first_tokens=_less(self.first_tokens, first_tokens_since.first_tokens),
            inference_s=_less(self.inference_s, before.inference_s),
            tokens=tokens,
        )

    def __add__(self, other: Figures) -> Figures:
        """Both together: what is missing in one is missing in the sum."""
        return Figures(
            first_token_s=_more(self.first_token_s, other.first_token_s),
            first_tokens=_more(self.first_tokens, other.first_tokens),
            inference_s=_more(self.inference_s, other.inference_s),
            tokens=self.tokens + other.tokens,
            foreign=self.foreign or other.foreign,
        )


async def read_figures(endpoint: Endpoint) -> Figures:
    """The figures since the server's start, over all replicas. Raises `ServerFailed`."""
    text = (await endpoint.get("/metrics")).text
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in _NAMES:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return Figures(
        first_token_s=sums.get("vllm:time_to_first_token_seconds_sum"),
        first_tokens=sums.get("vllm:time_to_first_token_seconds_count"),
        inference_s=sums.get("vllm:request_inference_time_seconds_sum"),
        tokens=Counters.parse(text),
    )


def _less(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before


def _more(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
