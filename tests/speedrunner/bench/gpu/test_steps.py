"""The steps of the record: which there are for a configuration, and all of them on a scripted engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from serving.sizing import fit
from speedrunner.bench.engine import playing_setup
from speedrunner.bench.gpu import steps as steps_module
from speedrunner.bench.gpu.gpu_pages import as_text
from speedrunner.bench.gpu.record import open_record, subject_of
from speedrunner.bench.gpu.session import LONGEST_S, Step, play_steps
from speedrunner.bench.gpu.steps import FOREIGN, UNCACHED, bench_of, claims, steps_of
from speedrunner.runs.shutdown import Shutdown
from tests.gpu_kinds import GPUS
from tests.record_samples import SUBJECT, start_step, write_record
from tests.scripted_runs import Runs, script

pytestmark = pytest.mark.process


def steps(*overrides: str) -> dict[str, Step]:
    return {each.name: each for each in steps_of(playing_setup(overrides))}


def test_the_steps_of_a_large_model_are_in_order_of_value() -> None:
    given = ("model=qwen3.5-27b", "model.load_format=dummy")
    setup = playing_setup(given)
    on_h100 = replace(setup, model_config=fit(setup.model_config, [GPUS["H100"]]))
    found = {each.name: each for each in steps_of(on_h100)}
    assert list(found) == [
        *("environment", "start-cold", "capacity", "tools", "cache-probe"),
        *("rollout-16", "rollout-64", "rollout-128", "long-prompts", "cache-share", "grammar"),
        *("start-warm", "no-cache", "half-cache", "fp8"),
    ]
    assert [name for name, step in found.items() if step.skip] == ["rollout-128"]
    assert all(step.bound_s <= LONGEST_S for step in found.values())


def test_a_level_that_the_server_caps_is_measured_once() -> None:
    found = steps("model=tiny-hybrid")
    assert found["rollout-128"].skip == "the server runs 32 sequences at a time, as in rollout-64"
    assert found["no-cache"].needs == "rollout-64"


@pytest.mark.parametrize(
    ("overrides", "reason", "skipped"),
    [
        (["model=tiny-random"], "the model configuration tiny-random-fp8 does not exist", ["fp8"]),
        (
            ["model=tiny-random", "model.prefix_caching=false"],
            UNCACHED,
            ["cache-probe", "cache-share", "no-cache", "half-cache"],
        ),
        (
            ["model=qwen3.5-27b", "serving.url=http://127.0.0.1:1/v1"],
            FOREIGN,
            ["start-cold", "start-warm", "no-cache", "half-cache", "fp8"],
        ),
    ],
)
def test_steps_that_cannot_be_played_are_skipped_with_the_reason(
    overrides: list[str], reason: str, skipped: list[str]
) -> None:
    assert [name for name, step in steps(*overrides).items() if step.skip == reason] == skipped


def test_other_servers_differ_in_what_they_are_compared_by(tmp_path: Path) -> None:
    setup = playing_setup(["model=qwen3.5-27b", "model.load_format=dummy"])
    found, record = steps("model=qwen3.5-27b", "model.load_format=dummy"), write_record(tmp_path)
    uncached = found["no-cache"].model_config(record, setup.model_config)
    assert uncached.server.flags["enable-prefix-caching"] is False
    fp8 = found["fp8"].model_config(record, setup.model_config)
    assert (fp8.name, fp8.load_format) == ("qwen3.5-27b-fp8", "dummy")
    servers = [step.server for step in found.values() if step.server != "main" and step.server]
    assert len(set(servers)) == len(servers) == 3


def test_a_start_that_was_measured_bounds_the_next(tmp_path: Path) -> None:
    setup = playing_setup(["model=qwen3.5-27b"])
    record = open_record(tmp_path, SUBJECT)
    assert bench_of(setup, record, print).start_s() == LONGEST_S
    record.keep(start_step("cold", 100.0, 1.0))
    assert bench_of(setup, record, print).start_s() == 180.0
    record.keep(start_step("warm", 1000.0, 1.0))
    assert bench_of(setup, record, print).start_s() == LONGEST_S


@pytest.fixture
def silent() -> Shutdown:
    return Shutdown(lambda line: None)


async def test_all_steps_that_a_running_server_allows_have_a_result(
    corridor: Runs, tmp_path: Path, silent: Shutdown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_module, "LEVELS", (2, 4))  # environments of more would need much memory
    overrides = corridor(script()).overrides()
    setup = playing_setup(overrides)
    record = open_record(tmp_path / "record", subject_of(setup, overrides))
    said: list[str] = []
    bench = bench_of(setup, record, said.append)
    bench.aim_s = 0.0  # the least of each step, however fast the machine is
    assert await play_steps(bench, steps_of(setup), 60.0, silent) == []
    done = [name for name, step in record.steps.items() if step.status == "done"]
    assert set(done) == {
        *("environment", "capacity", "tools", "cache-probe", "rollout-2", "rollout-4"),
        *("long-prompts", "cache-share", "grammar"),
    }
    assert any("rollout-2: 2 episodes of at most 2 requests" in line for line in said)
    assert record.facts("rollout-2") == {"model": "tiny-random", "calls": 2, "in_flight": 2}
    text = as_text(record)
    for heading in ("Machine", "Capacity", "Tool calls and grammar", "Prefix cache", "Rollouts"):
        assert f"#### {heading}\n" in text
    assert rows(record, "capacity")[0]["conversations"] == 1000 // (8192 // 32)


def rows(record: object, step: str) -> list[dict[str, int]]:
    (table,) = record.steps[step].measured.tables  # type: ignore[attr-defined]
    return list(table.rows)


def test_claims_come_from_the_memory_of_the_gpus() -> None:
    model_config = fit(playing_setup(["model=qwen3.5-27b"]).model_config, [GPUS["H100"]])
    assert claims(model_config, [GPUS["H100"]]) == {8192: 17, 32_768: 7, 131_072: 2}
    assert claims(model_config, []) == {}
    assert claims(playing_setup(["model=tiny-random"]).model_config, [GPUS["H100"]]) == {}
