"""The steps of `bench gpu`: which there are, and how they are played on one server within the minutes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from msgspec import structs

from serving.engine.capacity import CacheConfig
from serving.engine.endpoint import Endpoint
from serving.engine.gpus import GpuReport
from serving.errors import RequestFailed
from serving.sizing import fit
from speedrunner.bench.engine import playing_setup
from speedrunner.bench.gpu import steps as steps_module
from speedrunner.bench.gpu.steps import (
    Bench,
    BenchStep,
    as_served,
    describe_ratio,
    measure_capacity,
    play_steps,
    steps_of,
    with_folder,
)
from speedrunner.bench.measurement import Measurement
from speedrunner.bench.record import BenchRecord, describe_record, open_record, read_record_folder, subject_of
from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.shutdown import Interrupted, Shutdown
from tests.gpu_kinds import GPUS
from tests.record_samples import SUBJECT
from tests.scripted_runs import Runs, script

pytestmark = pytest.mark.process


def names(*overrides: str) -> list[str]:
    return [each.name for each in steps_of(playing_setup(overrides))]


def test_the_steps_of_a_large_model_are_in_order_of_value() -> None:
    setup = playing_setup(("model=qwen3.5-27b", "model.load_format=dummy"))
    on_h100 = replace(setup, model_config=fit(setup.model_config, [GPUS["H100"]]))
    assert [each.name for each in steps_of(on_h100)] == [
        *("start-cold", "capacity", "tools", "cache-probe", "utilisation", "rollout-16", "rollout-32"),
        "start-warm",
    ]
    assert [each.name for each in steps_of(on_h100, ["utilisation", "tools"])] == ["tools", "utilisation"]
    with pytest.raises(
        InvalidConfig, match=r"--only rollout-64: the steps here are start-cold, .*rollout-32"
    ):
        steps_of(on_h100, ["rollout-64"])


def test_schedules_are_compared_on_request_on_servers_of_our_own_that_can_convoy() -> None:
    model = ("model=qwen3.5-27b", "model.load_format=dummy")
    asked = steps_of(playing_setup(model), ["schedule", "capacity"])
    schedules = ["schedule-16", "schedule-16-convoys", "schedule-1", "schedule-1-convoys"]
    assert [step.name for step in asked] == ["capacity", *schedules]
    assert not set(schedules) & set(names(*model))
    attached = (*model, "serving.url=unix:/tmp/x/http")
    for overrides in (attached, ("model=qwen3-8b", "model.load_format=dummy"), ("model=tiny-random",)):
        with pytest.raises(
            InvalidConfig, match=r"--only schedule: the steps here are (start-cold, )?capacity"
        ):
            steps_of(playing_setup(overrides), ["schedule"])


@pytest.mark.parametrize(("ratio", "advice"), [(1.4, "lose"), (1.6, "compare output"), (2.0, "gain")])
def test_the_time_of_a_mixed_step_decides_about_convoys(ratio: float, advice: str) -> None:
    assert f"takes {ratio:.2f} times as long as a decode-only step:" in describe_ratio(ratio)
    assert advice in describe_ratio(ratio)


def test_a_running_server_gets_no_more_in_flight_than_its_command_line_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overrides = ("model=qwen3.5-27b", "model.load_format=dummy", "serving.url=unix:/tmp/x/http")
    setup = playing_setup(overrides)
    assert "rollout-128" in [each.name for each in steps_of(setup)]
    waiting = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", waiting, "--max-num-seqs", "24"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()  # before its first line the system may not know its command line yet
        monkeypatch.setattr(
            steps_module, "server_processes", lambda endpoint: [psutil.Process(server.pid)]
        )  # a real one would have to be vLLM
        served = as_served(setup.model_config, Endpoint.parse("unix:/tmp/x/http"))
    rollouts = [each.name for each in steps_of(replace(setup, model_config=served)) if each.kind]
    assert rollouts == ["rollout-16", "rollout-24"]


def test_steps_that_cannot_be_played_are_left_out() -> None:
    every = names("model=tiny-random")
    assert "rollout-32" in every  # as many as the server takes
    assert set(every) - set(names("model=tiny-random", "model.prefix_caching=false")) == {"cache-probe"}
    attached = names("model=tiny-random", "serving.url=http://127.0.0.1:1/v1")
    assert set(every) - set(attached) == {"start-cold", "start-warm"}


async def test_a_running_server_on_this_machine_is_compared_with_the_claim_for_its_gpus(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment: Any = SimpleNamespace(
        server=None,
        endpoint=Endpoint.parse("unix:/tmp/x/http"),
        model_config=fit(playing_setup(["model=qwen3.5-27b"]).model_config, [GPUS["H100"]]),
        replicas=[SimpleNamespace(cache=CacheConfig(784, 400, True, 16, hybrid=True))],
    )
    bench._deployment = deployment
    monkeypatch.setattr(steps_module, "read_gpus", lambda: GpuReport(installed=[GPUS["H100"]]))
    for found, expected in ([object()], [17, 7, 2]), ([], [None] * 3):
        monkeypatch.setattr(steps_module, "server_processes", lambda endpoint, found=found: found)
        measured = await measure_capacity(bench)
        assert [row.get("claimed") for row in measured.tables[0].rows] == expected
        assert measured.met is (True if found else None)
    bench._deployment = None


async def run(bench: Bench, *steps: BenchStep, minutes: float = 10.0) -> None:
    await play_steps(bench, steps, minutes, Shutdown(lambda line: None))


async def test_all_steps_that_a_running_server_allows_have_a_result(
    corridor: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for levels in ("LEVELS", "LOAD_LEVELS"):
        monkeypatch.setattr(steps_module, levels, (2, 4))  # environments of more would need much memory
    overrides = corridor(script()).overrides()
    setup = playing_setup(overrides)
    record = open_record(tmp_path, subject_of(setup, overrides))
    said: list[str] = []
    bench = Bench(setup, record, said.append)
    await run(bench, *steps_of(setup), minutes=60.0)
    expected = ["capacity", "tools", "cache-probe", "utilisation", "rollout-2", "rollout-4"]
    assert list(record.steps) == expected
    assert [step.reason for step in record.steps.values()] == [""] * 6
    assert "step 4 of 6, utilisation (takes about 45 s)" in said
    assert any("rollout-2 (takes about 60 s): pair 1 of 1 with 2 in flight" in line for line in said)
    text = describe_record(record)
    for heading in ("Environment", "Capacity", "Kinds", "Requests", "Utilisation", "Rollouts"):
        assert f"\n{heading}\n" in text
    assert rows(record, "capacity")[0]["conversations"] == 1000 // (8192 // 32)
    for row, level in zip(rows(record, "utilisation"), (2, 4), strict=True):
        assert (row["in flight"], row["GPU busy"], row["requests running"]) == (level, None, None)
    notes = record.steps["utilisation"].measured.notes  # type: ignore[union-attr]
    assert "logs no steps" in notes[-1]


def rows(record: BenchRecord, step: str) -> list[dict[str, int]]:
    measured = record.steps[step].measured
    assert measured is not None
    return list(measured.tables[0].rows)


@pytest.fixture
def bench(corridor: Runs, tmp_path: Path) -> Bench:
    """A record of the scripted engine."""
    setup = playing_setup(corridor(script()).overrides())
    return Bench(setup, open_record(tmp_path, SUBJECT), lambda line: None)


class Played:
    """Makes steps that note their names when they are played."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def step(
        self,
        name: str,
        error: BaseException | None = None,
        *,
        restarts: bool = False,
        kind: str = "capacity",
    ) -> BenchStep:
        async def play(bench: Bench) -> Measurement:
            if restarts:
                await bench.start()
            assert bench.is_running
            self.names.append(name)
            if error is not None:
                raise error
            return Measurement(name)

        return BenchStep(name, play, restarts, kind)


@pytest.fixture
def played() -> Played:
    return Played()


def reasons(bench: Bench) -> dict[str, str]:
    return {name: step.reason for name, step in read_record_folder(bench.record.folder).steps.items()}


async def forever() -> Measurement:
    found: Measurement = await asyncio.Future()
    return found


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RequestFailed("the engine said no\n  log: x"), "RequestFailed: the engine said no"),
        (KeyError("gone"), "KeyError: 'gone'"),
        (TimeoutError("no answer"), "TimeoutError: no answer"),
    ],
)
async def test_a_failed_step_is_recorded_does_not_stop_the_others_and_is_tried_again(
    bench: Bench, played: Played, error: Exception, reason: str
) -> None:
    await run(bench, played.step("a", error), played.step("b"))
    assert reasons(bench) == {"a": reason, "b": ""}
    assert type(error).__name__ in bench.record.steps["a"].traceback
    await run(bench, played.step("a"), played.step("b"))
    assert reasons(bench) == {"a": "", "b": ""}
    assert played.names == ["a", "b", "a"]


async def test_a_step_that_exceeds_its_bound_is_ended(
    bench: Bench, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def hang(bench: Bench) -> Measurement:
        try:
            return await forever()
        finally:
            monkeypatch.undo()
            ended.set()

    async def shorten(bench: Bench) -> Measurement:
        monkeypatch.setattr(steps_module, "LONGEST_S", 0.0)
        return Measurement("a")

    first, second = (BenchStep(name, play, kind="capacity") for name, play in (("a", shorten), ("b", hang)))
    await run(bench, first, second, played.step("c", restarts=True))
    assert reasons(bench) == {"a": "", "b": "it took longer than its limit of 0 s", "c": ""}
    assert ended.is_set()


async def test_a_step_that_does_not_fit_into_the_minutes_is_left_out_and_a_shorter_one_is_played(
    bench: Bench, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        steps_module, "EXPECTED_S", {"capacity": (0, 30), "tools": (0, 200), "start-cold": (0, 100)}
    )
    long, short = played.step("a", kind="tools"), played.step("b")
    await run(bench, long, short, minutes=1.0)  # attached: no time for a start is kept
    assert played.names == ["b"]
    config = bench.setup.config
    bench.setup = replace(
        bench.setup, config=structs.replace(config, serving=structs.replace(config.serving, url=None))
    )
    restart = played.step("c", restarts=True, kind="start-cold")
    assert [bench.expected_s(each) for each in (long, short, restart)] == [300, 130, 100]


async def test_an_interrupted_step_is_not_recorded_and_the_server_is_stopped(
    bench: Bench, played: Played
) -> None:
    shutdown = Shutdown(lambda line: None)

    async def interrupted(bench: Bench) -> Measurement:
        shutdown._on_signal(2)
        return await forever()

    steps = [played.step("a"), BenchStep("b", interrupted, kind="capacity")]
    with pytest.raises(Interrupted):
        await shutdown.run(play_steps(bench, steps, 20.0, shutdown))
    assert reasons(bench) == {"a": ""}
    assert not bench.is_running
    await run(bench, steps[0], played.step("b"))
    assert played.names == ["a", "b"]


def test_servers_keep_compiled_code_in_the_record_s_folder(bench: Bench) -> None:
    before = bench.setup.model_config.server.env
    after = with_folder(bench.setup.model_config, bench.compiled).server.env
    added = {name: after[name] for name in after.keys() - before}
    assert {"VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"} <= added.keys()
    assert all(str(path).startswith(f"{bench.compiled.resolve()}/") for path in added.values())
    assert len(set(added.values())) == len(added)
