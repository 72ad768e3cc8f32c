"""The engine's own counters, against which our accounts are checked."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from serving.endpoint import Endpoint
from serving.errors import ServerFailed


class Counters(msgspec.Struct, frozen=True):
    """Tokens since the server's start, summed over its engines.

    Attributes:
        prompt: prompt tokens of every request that reached its first token, cached ones included.
        cached: prompt tokens taken from the prefix cache.
        generated: tokens produced, those of aborted requests included.
    """

    prompt: int
    cached: int
    generated: int

    def __sub__(self, earlier: Counters) -> Counters:
        """What was counted since `earlier`."""
        return Counters(
            self.prompt - earlier.prompt,
            self.cached - earlier.cached,
            self.generated - earlier.generated,
        )

    @classmethod
    def parse(cls, text: str) -> Counters:
        """Read the text of `/metrics`.

        Raises:
            ServerFailed: it lacks one of the counters.
        """
        samples = list(_samples(text))

        def total(name: str) -> int:
            values = [sample.value for sample in samples if sample.name == name]
            if not values:
                raise ServerFailed(f"the server's /metrics holds no {name}: is it a vLLM of another version?")
            return int(sum(values))

        return cls(
            prompt=total("vllm:prompt_tokens_total"),
            cached=total("vllm:prompt_tokens_cached_total"),
            generated=total("vllm:generation_tokens_total"),
        )


class CacheConfig(msgspec.Struct, frozen=True):
    """The prefix cache of one engine.

    Attributes:
        block_size: tokens per block.
        num_gpu_blocks: blocks, on whatever device the engine runs.
        enable_prefix_caching: whether blocks are shared at all.
    """

    block_size: int
    num_gpu_blocks: int
    enable_prefix_caching: bool

    @classmethod
    def parse(cls, text: str) -> list[CacheConfig]:
        """One per engine, from the text of `/metrics`."""
        infos = [sample.labels for sample in _samples(text) if sample.name == "vllm:cache_config_info"]
        return [
            cls(
                block_size=int(info["block_size"]),
                num_gpu_blocks=int(info["num_gpu_blocks"]),
                enable_prefix_caching=info["enable_prefix_caching"] == "True",
            )
            for info in infos
        ]


async def read_counters(endpoint: Endpoint) -> Counters:
    """The counters now. Raises `ServerFailed` if the server does not answer or has none."""
    return Counters.parse((await endpoint.get("/metrics")).text)


async def read_cache_config(endpoint: Endpoint) -> list[CacheConfig]:
    """The cache of each engine. Raises `ServerFailed` if the server does not answer."""
    return CacheConfig.parse((await endpoint.get("/metrics")).text)


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples
