"""The phases of a start, from lines as vLLM 0.32 writes them."""

from __future__ import annotations

from serving.engine.start_phases import IMPORTING, StartPhases
from tests.golden_tables import Golden, table

GPU_START = {
    3.0: "Resolved architecture: Qwen3_5ForConditionalGeneration",
    20.0: "Initializing a V1 LLM engine (v0.32.0) with config: model='some/model'",
    31.0: "Starting to load model some/model...",
    60.0: "Loading safetensors checkpoint shards:  64% Completed | 7/11 [00:19<00:11,  2.79s/it]",
    75.0: "Loading weights took 41.20 seconds",
    76.0: "Model loading took 50.1 GiB memory and 45.000000 seconds",
    80.0: "Starting torch.compile",
    95.0: "Dynamo bytecode transform time: 14.20 s",
    140.0: "Compiling a graph for compile range (1, 8192) takes 41.10 s",
    150.0: "torch.compile took 70.00 s in total",
    154.0: "Initial profiling/warmup run took 4.00 s",
    160.0: "Profiling CUDA graph memory: PIECEWISE=11 (largest=64), FULL=7 (largest=64)",
    170.0: "Available KV cache memory: 19.0 GiB",
    171.0: "GPU KV cache size: 300,000 tokens, Maximum concurrency for 131,072 tokens per request: 2.29x",
    173.0: "2026-11-23 08:16:37,605 - INFO - core.py:564 - flashinfer.jit: Building JIT module sampling;",
    175.0: "JIT kernel warmup starting.",
    180.0: "DeepGEMM warmup:  10%|#         | 10/100 [00:01<00:09, 10.00it/s]",
    200.0: "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|# | 5/11 [00:02<00:02,  2.5it/s]",
    220.0: "Graph capturing finished in 20 secs, took 0.61 GiB",
    225.0: "init engine (profile, create kv cache, warmup model) took 145.00 s (compilation: 70.00 s)",
    230.0: "Starting vLLM server on unix:/tmp/speedrunner-1f0c22ab/http",
}  # fmt: skip


def started(until: float) -> StartPhases:
    phases = StartPhases()
    for seconds, line in GPU_START.items():
        if seconds <= until:
            phases.read([line], seconds)
    return phases


def test_each_phase_is_shown_with_its_time_and_progress(golden: Golden) -> None:
    times = (5, 30, 33, 62, 77, 141, 165, 172, 181, 201, 222, 231)
    golden("start_phases.txt", table([(f"after {now} s", started(now).text(now)) for now in times]))


def test_the_seconds_of_all_phases_add_up_to_the_whole_start() -> None:
    seconds = started(240.0).seconds(240.0)
    assert sum(seconds.values()) == 240.0
    assert seconds["compiling (torch.compile)"] == 70.0
    assert seconds["measuring memory"] == 4.0 + 6.0  # before torch.compile, and after the first run
    assert seconds["tuning kernels"] == 4.0
    assert seconds["capturing CUDA graphs"] == 10.0 + 20.0  # a sample, to measure its memory, and all
    assert list(seconds)[:3] == [IMPORTING, "starting the engine", "loading weights"]
