"""Probes of a real vLLM: every call is valid, and the cache gives all that it can."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from serving.engine.endpoint import Endpoint
from serving.usage import Counters
from speedrunner.bench.tool_probe import Counts, probe_tools
from tests.scripted_runs import in_process

pytestmark = pytest.mark.slow


async def test_all_calls_of_the_battery_are_valid(engine_server: Any) -> None:
    role = msgspec.structs.replace(engine_server.model_config.roles.actor, thinking_tokens=24)
    found = await probe_tools(engine_server.model, role, 13, 13, lambda line: None)
    *kinds, total = found.tables[0].rows
    assert found.facts["problems"] == []
    assert total == Counts("all", 13, 0, 0)
    assert {counts.valid for counts in kinds} == {1, 2}
    thought = [row.usage.reasoning for row in engine_server.rows[1:14] if row.usage.completion]
    assert max(thought) > 0
    reconciliation = await engine_server.deployment.reconciliation()
    assert reconciliation.residual == Counters()


class TestCommand:
    """`speedrunner bench probe`, with the server named by its address."""

    def test_cache_as_json(self, vllm_endpoint: Endpoint) -> None:
        url = f"serving.url={vllm_endpoint}"
        done = in_process("bench", "probe", "cache", "model=tiny-random", url, "--turns", "3", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        whole = found["requests"][-1]
        assert whole["expected"] == whole["reported"] != 0
        assert found["figures"][0]["value"] == 1.0
        assert found["advice"] == []
