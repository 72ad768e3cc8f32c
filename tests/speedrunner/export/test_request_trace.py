"""Mooncake traces of ledgers: their lines, and that a simulated cache gets as many hits as the engine did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.engine.cache_config import CacheConfig
from serving.engine.ideal_cache import IdealCache
from speedrunner.export.request_trace import TracedRequest, trace_requests
from speedrunner.store.run_data import RunData, load
from tests.scripted_engine import BLOCK
from tests.scripted_runs import ScriptedRun, in_process
from tests.speedrunner.store.test_stored_format import STORED

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def run(learnt: ScriptedRun) -> RunData:
    return learnt.data


def share_of_hits(trace: list[TracedRequest], block: int) -> float:
    """Replay a trace on an ideal cache with the trace's blocks as tokens.

    The engine computes the answer of a request as well. Its text is in the next prompt of its conversation:
    the first later prompt that begins with all whole blocks of the request's own.
    """
    cache = IdealCache(CacheConfig(block_size=1, num_gpu_blocks=0, enable_prefix_caching=True, match_unit=1))
    hits = 0
    for number, each in enumerate(trace):
        hits += cache.send(each.hash_ids).cacheable * block
        whole = each.hash_ids[: each.input_length // block]
        computed = (each.input_length + each.output_length - 1) // block
        later = (other.hash_ids for other in trace[number + 1 :])
        if following := next((ids for ids in later if whole and ids[: len(whole)] == whole), None):
            cache.send(following[:computed])
    return hits / sum(each.input_length for each in trace)


def recorded_share(run: RunData) -> float:
    usages = [row.usage for row in run.ledger if row.usage is not None]
    return sum(each.cached for each in usages) / sum(each.prompt for each in usages)


def test_a_replay_has_the_prefix_hit_rate_of_the_engine(run: RunData) -> None:
    trace = list(trace_requests(run, BLOCK))
    assert share_of_hits(trace, BLOCK) == pytest.approx(recorded_share(run), abs=0.005)


def test_a_replay_of_a_run_on_vllm_has_its_prefix_hit_rate() -> None:
    run = load(STORED)
    assert share_of_hits(list(trace_requests(run, 16)), 16) == pytest.approx(recorded_share(run), abs=0.005)


def test_each_line_has_the_four_fields_of_the_format(run: RunData, tmp_path: Path) -> None:
    done = in_process(
        *("export", str(run.path), "--to", "mooncake", "--out", str(tmp_path / "out")),
        *("--block-size", "64"),
    )
    requests = [row for row in run.ledger if row.usage is not None]
    assert done.stdout == f"{len(requests)} requests of 1 runs written to {tmp_path / 'out'}\n"
    lines = [json.loads(line) for line in (tmp_path / "out/run/trace.jsonl").read_text().splitlines()]
    assert lines[0]["timestamp"] == 0
    assert [each["timestamp"] for each in lines] == sorted(each["timestamp"] for each in lines)
    for each in lines:
        assert set(each) == {"timestamp", "input_length", "output_length", "hash_ids"}
        assert len(each["hash_ids"]) == -(-each["input_length"] // 64)
        assert len(set(each["hash_ids"])) == len(each["hash_ids"])
    lengths = sorted((row.usage.prompt, row.usage.completion) for row in requests if row.usage)
    assert sorted((each["input_length"], each["output_length"]) for each in lines) == lengths
