"""How steps are played: in order, within the minutes, on one server, whatever becomes of a single one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from serving.deployment import deploy
from serving.errors import RequestFailed
from speedrunner.bench.engine import playing_setup
from speedrunner.bench.gpu.gpu_pages import PAGE
from speedrunner.bench.gpu.record import open_record, read_record_folder
from speedrunner.bench.gpu.session import (
    LONGEST_S,
    Bench,
    Left,
    Step,
    play_steps,
    with_folder,
)
from speedrunner.bench.measurement import Measurement
from speedrunner.config.schema import InvalidConfig
from speedrunner.runs.shutdown import Interrupted, Shutdown
from tests.record_samples import SUBJECT
from tests.scripted_runs import Runs, script

MAIN, OTHER = "main", "other"


async def forever() -> Measurement:
    found: Measurement = await asyncio.Future()
    return found


@pytest.fixture
def bench(corridor: Runs, tmp_path: Path) -> Bench:
    """A record of the scripted engine; each start may take 100 s."""
    setup = playing_setup(corridor(script()).overrides())
    return Bench(setup, open_record(tmp_path / "record", SUBJECT), 100.0, 1.0, lambda line: None)


class Played:
    """Makes steps that note their names, and the server that ran, when they are played."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.servers: list[str] = []

    def step(self, name: str, bound_s: float = 10.0, error: BaseException | None = None, **more: Any) -> Step:
        async def play(bench: Bench) -> Measurement:
            if more.get("starts"):
                await bench.start(more["starts"], bench.setup.model_config)
            self.names.append(name)
            self.servers.append(bench.running)
            if error is not None:
                raise error
            return Measurement(name, facts={"by": name})

        return Step(name=name, bound_s=bound_s, play=play, **more)


@pytest.fixture
def played() -> Played:
    return Played()


async def run(bench: Bench, *steps: Step, minutes: float = 10.0) -> list[Left]:
    return await play_steps(bench, steps, minutes, Shutdown(lambda line: None))


def statuses(bench: Bench) -> dict[str, str]:
    return {name: step.status for name, step in read_record_folder(bench.record.folder).steps.items()}


async def test_finished_steps_are_not_played_again(bench: Bench, played: Played) -> None:
    steps = [played.step("a"), played.step("b")]
    assert await run(bench, steps[0]) == []
    assert await run(bench, *steps) == []
    assert await run(bench, *steps, minutes=0.0) == []
    assert played.names == ["a", "b"]
    assert statuses(bench) == {"a": "done", "b": "done"}
    assert (bench.record.folder / PAGE).exists()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RequestFailed("the engine said no\n  log: x"), "the engine said no"),
        (KeyError("gone"), "KeyError: 'gone'"),
        (TimeoutError("no answer"), "TimeoutError: no answer"),
    ],
)
async def test_a_failed_step_is_recorded_does_not_stop_the_others_and_is_tried_again(
    bench: Bench, played: Played, error: Exception, reason: str
) -> None:
    (left,) = await run(bench, played.step("a", error=error), played.step("b"))
    assert (left.step, left.reason) == ("a", reason)
    assert statuses(bench) == {"a": "failed", "b": "done"}
    found = bench.record.steps["a"]
    assert bool(found.traceback) == (not isinstance(error, RequestFailed))
    assert await run(bench, played.step("a"), played.step("b")) == []
    assert statuses(bench) == {"a": "done", "b": "done"}
    assert played.names == ["a", "b", "a"]


async def test_a_step_that_exceeds_its_bound_is_ended(bench: Bench, played: Played) -> None:
    ended = asyncio.Event()

    async def hang(bench: Bench) -> Measurement:
        try:
            return await forever()
        finally:
            ended.set()

    (left,) = await run(bench, Step(name="a", bound_s=0.0, play=hang), played.step("b"))
    assert left.reason == "it took longer than its limit of 0 s"
    assert ended.is_set()
    assert played.names == ["b"]


async def test_no_step_starts_that_might_not_fit_into_the_minutes(bench: Bench, played: Played) -> None:
    steps = [played.step("long", bound_s=120.0), played.step("short", bound_s=60.0)]
    (left,) = await run(bench, *steps, minutes=1.5)
    assert left == Left("long", "not started", 120.0)
    assert played.names == ["short"]


async def test_too_few_minutes_for_any_step_are_refused(bench: Bench, played: Played) -> None:
    steps = [played.step("long", bound_s=120.0), played.step("short", bound_s=60.0)]
    message = r"--minutes 0\.5 is too short: .* short, may take 1\.0 minutes"
    with pytest.raises(InvalidConfig, match=message):
        await run(bench, *steps, minutes=0.5)
    assert played.names == []


async def test_the_start_of_a_server_counts_until_it_runs(bench: Bench, played: Played) -> None:
    step = played.step("a", bound_s=50.0, server=MAIN)
    assert bench.needed_s(step) == 150.0
    assert bench.needed_s(replace(step, bound_s=LONGEST_S)) == LONGEST_S
    await bench.start(MAIN, bench.setup.model_config)
    assert bench.needed_s(step) == 50.0
    assert bench.needed_s(replace(step, server=OTHER)) == 150.0
    await bench.stop()
    assert bench.needed_s(step) == 150.0


async def test_steps_share_a_server_and_a_measured_start_comes_before_others_that_need_it(
    bench: Bench, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[str] = []
    start = Bench.start

    async def noted(self: Bench, server: str, model_config: Any) -> dict[str, float]:
        starts.append(server)
        return await start(self, server, model_config)

    monkeypatch.setattr(Bench, "start", noted)
    steps = [
        played.step("plain"),
        played.step("a", server=MAIN),
        played.step("b", server=MAIN),
        played.step("other", server=OTHER),
        played.step("warm", starts=MAIN),
    ]
    assert await run(bench, *steps) == []
    assert played.names == ["plain", "warm", "a", "b", "other"]
    assert played.servers == ["", MAIN, MAIN, MAIN, OTHER]
    assert starts == [MAIN, OTHER]
    assert bench.running == ""  # stopped at the end


async def test_a_server_that_does_not_start_fails_its_steps_after_one_try(
    bench: Bench, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = bench.setup.config
    nowhere = structs.replace(config, serving=structs.replace(config.serving, url="unix:/nowhere/http"))
    bench.setup = replace(bench.setup, config=nowhere)
    tries: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        tries.append(1)
        return deploy(*arguments, **options)

    monkeypatch.setattr("speedrunner.bench.gpu.session.deploy", counted)
    left = await run(bench, played.step("a", server=MAIN), played.step("b", server=MAIN), played.step("c"))
    assert [each.step for each in left] == ["a", "b"]
    assert "/nowhere/http" in left[0].reason
    assert left[1].reason == f"its server did not start: {left[0].reason}"
    assert played.names == ["c"]
    assert tries == [1]


async def test_what_cannot_be_played_here_is_skipped_with_its_reason(bench: Bench, played: Played) -> None:
    steps = [played.step("a", skip="no such GPU"), played.step("b")]
    assert await run(bench, *steps) == []
    assert played.names == ["b"]
    assert bench.record.steps["a"].reason == "no such GPU"
    assert statuses(bench) == {"a": "skipped", "b": "done"}


async def test_an_interrupted_step_is_not_recorded_and_the_server_is_stopped(
    bench: Bench, played: Played
) -> None:
    shutdown = Shutdown(lambda line: None)

    async def interrupted(bench: Bench) -> Measurement:
        shutdown._on_signal(2)
        return await forever()

    steps = [played.step("a"), Step(name="b", bound_s=60.0, play=interrupted, server=MAIN)]
    with pytest.raises(Interrupted):
        await shutdown.run(play_steps(bench, steps, 10.0, shutdown))
    assert statuses(bench) == {"a": "done"}
    assert bench.running == ""
    assert await run(bench, steps[0], played.step("b")) == []
    assert played.names == ["a", "b"]


def test_servers_keep_compiled_code_in_the_record_s_folder(bench: Bench) -> None:
    model_config = with_folder(bench.setup.model_config, bench.compiled)
    added = {
        name: model_config.server.env[name]
        for name in model_config.server.env.keys() - bench.setup.model_config.server.env
    }
    assert {"VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"} <= added.keys()
    assert all(str(path).startswith(f"{bench.compiled.resolve()}/") for path in added.values())
    assert len(set(added.values())) == len(added)
