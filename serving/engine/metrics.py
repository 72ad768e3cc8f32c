"""The engine's own counters and gauges, against which our ledger is checked, and a watch over them.

The watch notices an engine that hangs: its API still answers, but none of its counters changes any longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from serving.engine.capacity import CacheConfig
from serving.engine.endpoint import Endpoint
from serving.errors import ServerFailed
from serving.usage import MAX_INTEGER, Counters

_PROGRESS = (
    *("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count"),
    *("vllm:request_success_total", "vllm:kv_cache_usage_perc"),
)
"""Counters that grow with each step that produces output, and the used share of the cache. It also changes at
each step of a prefill: vLLM 0.32 updates the counters only for steps with output, and only the last step of a
prompt has output."""


class Metrics:
    """The text of a server's `/metrics`. Only the requested samples are parsed: parsing all 639 lines of vLLM
    takes 7 ms of CPU."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    def samples(self, *names: str) -> list[Sample]:
        """Return the samples with these names, in the order of the text."""
        beginnings = tuple(name + end for name in names for end in ("{", " "))
        lines = [line for line in self._lines if line.startswith(beginnings)]
        families = text_string_to_metric_families("\n".join([*lines, ""]))
        return [sample for family in families for sample in family.samples]

    def counters(self) -> Counters:
        """Return the engine's counters. Raises `ServerFailed` if one of them is missing or is no count."""
        names = ("prompt_tokens_total", "prompt_tokens_cached_total", "generation_tokens_total")
        with _explain_errors():
            sums = self.sums(*names)
            for name in names:
                if not 0 <= sums[name] <= MAX_INTEGER:
                    raise ValueError(f"vllm:{name} is {sums[name]}")
            return Counters(*(int(sums[name]) for name in names))

    def caches(self) -> list[CacheConfig]:
        """Return the prefix cache of each replica, in order. Raises `ServerFailed` if a value is missing.

        vLLM 0.32 labels the sample of each replica with the sum of all replicas' blocks: 32,768 for each of
        two CPU replicas, 16,384 for a single one. So the sum is divided by the number of replicas.
        """
        with _explain_errors():
            infos = [sample.labels for sample in self.samples("vllm:cache_config_info")]
            return [
                _cache(info, len(infos))
                for info in sorted(infos, key=lambda info: int(info.get("engine", 0)))
            ]

    def progress(self) -> list[str]:
        """Return the lines of which an engine that works changes at least one."""
        return [line for line in self._lines if line.startswith(_PROGRESS)]

    def sums(self, *names: str) -> dict[str, float]:
        """Return the sums over all replicas of the samples with these names (without vLLM's prefix).

        Names that the server does not have are left out.
        """
        sums: dict[str, float] = {}
        for sample in self.samples(*(f"vllm:{name}" for name in names)):
            name = sample.name.removeprefix("vllm:")
            sums[name] = sums.get(name, 0.0) + sample.value
        return sums


@contextlib.contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        name = str(error.args[0])
        raise ServerFailed(
            f"the server's /metrics has no vllm:{name}; is it another version of vLLM?"
        ) from None
    except ValueError as error:
        raise ServerFailed(f"the server's /metrics is unusable: {str(error)[:200]}") from error


def _cache(info: Mapping[str, str], replicas: int) -> CacheConfig:
    """Return a replica's cache. Raises `KeyError`, `ValueError`."""
    unit = info.get("prefix_match_unit", "None")
    cache = CacheConfig(
        block_size=int(info["block_size"]),
        num_gpu_blocks=int(info["num_gpu_blocks"]) // replicas,
        enable_prefix_caching=info["enable_prefix_caching"] == "True",
        match_unit=int(info["block_size"] if unit in ("None", "") else unit),
        hybrid=info.get("mamba_cache_mode", "none") != "none",
    )
    if min(cache.block_size, cache.match_unit) < 1 or cache.num_gpu_blocks < 0:
        raise ValueError(f"no cache has {cache}")
    return cache


async def read_metrics(endpoint: Endpoint) -> Metrics:
    """Return the server's current metrics. Raises `ServerFailed` if it does not answer."""
    return Metrics((await endpoint.get("/metrics")).text)


async def read_counters(endpoint: Endpoint) -> Counters:
    """Return the current counters. Raises `ServerFailed` if the server does not answer or has none."""
    return (await read_metrics(endpoint)).counters()


PATIENCE_S = 300.0
"""How long an engine may show no progress while requests run, in seconds.

A healthy engine changes its counters or the used share of its cache at each step, which takes a second or two
on a GPU. A new one may still compile kernels. An estimate, not measured on a GPU."""


@contextlib.asynccontextmanager
async def watch(
    endpoint: Endpoint,
    patience_s: float,
    is_busy: Callable[[], bool],
    on_hang: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Watch an engine while the context lasts.

    Args:
        patience_s: how long the engine may show no progress while our requests wait for it, in seconds.
        on_hang: called when it hangs; then the watch continues.
    """

    async def watch() -> None:
        seen, moved = list[str](), time.monotonic()
        while True:
            await asyncio.sleep(min(patience_s / 6, 10.0))
            progress = seen  # a server that shuts down refuses connections, and may keep old ones for ever
            with contextlib.suppress(ServerFailed):
                progress = (await read_metrics(endpoint)).progress()
            now = time.monotonic()
            if progress != seen or not is_busy():
                seen, moved = progress, now
            elif now - moved > patience_s:
                await on_hang()
                moved = now

    task = asyncio.create_task(watch(), name="watchdog")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
