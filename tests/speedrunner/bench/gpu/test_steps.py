"""The steps of `bench gpu`: which there are, and how they are played on one server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from serving.deployment import Deployment
from serving.engine.capacity import CacheConfig
from serving.engine.endpoint import Endpoint
from serving.engine.gpus import GpuReport
from serving.errors import RequestFailed, ServerDied
from serving.model_config import ModelConfig
from serving.sizing import fit
from speedrunner.bench.engine import playing_setup
from speedrunner.bench.gpu import steps as steps_module
from speedrunner.bench.gpu.steps import (
    BenchStep,
    describe_environment,
    describe_ratio,
    measure_capacity,
    play_steps,
    steps_of,
)
from speedrunner.bench.measurement import Measurement
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import Status
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Interrupted, Shutdown
from tests.gpu_kinds import GPUS
from tests.scripted_runs import Runs, script

pytestmark = pytest.mark.process


def names(*overrides: str) -> list[str]:
    return [each.name for each in steps_of(playing_setup(overrides))]


def test_the_steps_of_a_large_model_are_in_order_of_value() -> None:
    setup = playing_setup(("model=qwen3.5-27b", "model.load_format=dummy"))
    on_h100 = replace(setup, model_config=fit(setup.model_config, [GPUS["H100"]]))
    assert [each.name for each in steps_of(on_h100)] == [
        *("capacity", "tools", "cache-probe", "utilisation", "rollout-16", "rollout-32")
    ]
    assert [each.name for each in steps_of(on_h100, ["utilisation", "tools"])] == ["tools", "utilisation"]
    with pytest.raises(InvalidConfig, match=r"--only rollout-64: the steps here are capacity, .*rollout-32"):
        steps_of(on_h100, ["rollout-64"])


def test_schedules_are_compared_on_request_on_servers_of_our_own_that_can_convoy() -> None:
    model = ("model=qwen3.5-27b", "model.load_format=dummy")
    asked = steps_of(playing_setup(model), ["schedule", "capacity"])
    schedules = ["schedule-16", "schedule-16-convoys", "schedule-1", "schedule-1-convoys"]
    assert [step.name for step in asked] == ["capacity", *schedules]
    assert not set(schedules) & set(names(*model))
    attached = (*model, "serving.url=unix:/tmp/x/http")
    for overrides in (attached, ("model=qwen3-8b", "model.load_format=dummy"), ("model=tiny-random",)):
        with pytest.raises(InvalidConfig, match=r"--only schedule: the steps here are capacity"):
            steps_of(playing_setup(overrides), ["schedule"])


@pytest.mark.parametrize(("ratio", "advice"), [(1.4, "lose"), (1.6, "compare output"), (2.0, "gain")])
def test_the_time_of_a_mixed_step_decides_about_convoys(ratio: float, advice: str) -> None:
    assert f"takes {ratio:.2f} times as long as a decode-only step:" in describe_ratio(ratio)
    assert advice in describe_ratio(ratio)


def test_steps_that_cannot_be_played_are_left_out() -> None:
    every = names("model=tiny-random")
    assert "rollout-32" in every  # as many as the server takes
    assert set(every) - set(names("model=tiny-random", "model.prefix_caching=false")) == {"cache-probe"}


async def test_a_running_server_on_this_machine_is_compared_with_the_claim_for_its_gpus(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment: Any = SimpleNamespace(
        server=None,
        endpoint=Endpoint.parse("unix:/tmp/x/http"),
        model_config=fit(playing_setup(["model=qwen3.5-27b"]).model_config, [GPUS["H100"]]),
        replicas=[SimpleNamespace(cache=CacheConfig(784, 400, True, 16, hybrid=True))],
    )
    monkeypatch.setattr(steps_module, "read_gpus", lambda: GpuReport(installed=[GPUS["H100"]]))
    for found, expected in ([object()], [17, 7, 2]), ([], [None] * 3):
        monkeypatch.setattr(steps_module, "server_processes", lambda endpoint, found=found: found)
        measured = await measure_capacity(deployment, setup, print)
        assert [row.get("claimed") for row in measured.tables[0].rows] == expected
        assert measured.met is (True if found else None)


async def run(setup: Setup, *steps: BenchStep, status: Status = lambda line: None) -> list[Measurement]:
    """Play steps and return what is shown."""
    shown: list[Measurement] = []
    is_good = await play_steps(setup, steps, status, Shutdown(lambda line: None), shown.append)
    assert is_good is all(measured.met is not False for measured in shown)
    return shown


async def test_all_steps_that_a_running_server_allows_have_a_result(
    corridor: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for levels in ("LEVELS", "LOAD_LEVELS"):
        monkeypatch.setattr(steps_module, levels, (2, 4))  # environments of more would need much memory
    monkeypatch.setattr(steps_module, "LEAST_JUDGED", 2)  # no verdict on this machine's speed
    setup = playing_setup(corridor(script()).overrides())
    said: list[str] = []
    shown = await run(setup, *steps_of(setup), status=said.append)
    expected = ["capacity", "tools", "cache-probe", "utilisation", "rollout-2", "rollout-4"]
    assert [measured.title.partition(":")[0] for measured in shown] == expected
    assert any("rollout-2: pair 1 of 1 with 2 in flight" in line for line in said)
    tables = [measured.tables[0] for measured in shown]
    assert tables[0].rows[0]["conversations"] == 1000 // (8192 // 32)
    for row, level in zip(tables[3].rows, (2, 4), strict=True):
        assert (row["in flight"], row["GPU busy"], row["requests running"]) == (level, None, None)
    assert "logs no steps" in shown[3].notes[-1]


@pytest.fixture
def setup(corridor: Runs) -> Setup:
    """A setup with the scripted engine."""
    return playing_setup(corridor(script()).overrides())


async def test_the_others_follow_a_step_that_fails(setup: Setup) -> None:
    async def fail(deployment: Deployment, setup: Setup, status: Status) -> Measurement:
        raise RequestFailed("the engine said no\n  log: x")

    async def succeed(deployment: Deployment, setup: Setup, status: Status) -> Measurement:
        return Measurement("done")

    failed, done = await run(setup, BenchStep("a", fail), BenchStep("b", succeed))
    assert (failed.title, failed.met) == ("a: the engine said no", False)
    assert (done.title, done.met) == ("b: done", None)


async def test_a_step_has_a_server_that_lives_and_serves_what_it_needs(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()
    other = setup.model_config.with_flags({"seed": 1})

    @asynccontextmanager
    async def open_engine(model_config: ModelConfig, *_: object, **options: bool) -> AsyncIterator[Any]:
        name = "other" if model_config is other else "usual"
        opened.append(f"{name} starts")
        try:
            yield SimpleNamespace(server=SimpleNamespace(alive=True))
        finally:
            opened.append(f"{name} is stopped")

    async def play(deployment: Any, setup: Setup, status: Status) -> Measurement:
        return Measurement("done")

    async def kill(deployment: Any, setup: Setup, status: Status) -> Measurement:
        deployment.server.alive = False
        raise ServerDied("the engine died")

    async def interrupt(deployment: Any, setup: Setup, status: Status) -> Measurement:
        shutdown._on_signal(2)
        return await asyncio.Future()

    monkeypatch.setattr(steps_module, "open_engine", open_engine)
    steps = [BenchStep("a", play), BenchStep("b", kill), BenchStep("c", play)]
    steps += [BenchStep("d", play, own=other), BenchStep("e", interrupt, own=other)]
    shutdown, shown = Shutdown(lambda line: None), list[Measurement]()
    with pytest.raises(Interrupted):
        await shutdown.run(play_steps(setup, steps, lambda line: None, shutdown, shown.append))
    assert [measured.met for measured in shown] == [None, False, None, None]
    usual = ["usual starts", "usual is stopped"]
    assert opened == [*usual, *usual, "other starts", "other is stopped"]


def test_the_environment_names_model_and_software(setup: Setup) -> None:
    described = describe_environment(setup)
    names = {row["name"] for row in described.tables[0].rows}
    assert described.title.startswith(f"{setup.model_config.name} on ")
    assert {"CPU", "cores", "python"} <= names
