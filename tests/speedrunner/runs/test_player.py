"""Several runs on one engine: each whole and its own, none waiting for another."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from rich.console import Console

from serving.errors import EngineDead, ServerDied, ServerFailed
from speedrunner.config.grid import Grid
from speedrunner.runs import player
from speedrunner.runs.open_run import OpenRun
from speedrunner.runs.planned_runs import set_up_runs
from speedrunner.runs.player import MOST_DEATHS, PlayResult, play_runs, survive_deaths
from speedrunner.runs.server_deaths import ServerDeaths
from speedrunner.runs.servers import fit_model, serve_model
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Interrupted, Shutdown
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError
from tests.scripted_engine import Answer, Request, call, refuse
from tests.scripted_runs import (
    LEARN,
    PLANNED,
    TO_FLAG,
    Runs,
    ScriptedRun,
    check_finished,
    complaint,
    in_process,
    script,
    walker,
)

pytestmark = pytest.mark.process


class Sweep:
    """A list of runs on one scripted engine."""

    def __init__(self, run: ScriptedRun) -> None:
        self.folder = run.folder
        self.shared = [*run.settings, *run.arguments]
        self.printed = ""

    def file(self, *runs: str) -> Path:
        """The list; each run gets its own directory unless it names one."""
        named = (
            run if "run.dir" in run else f"{run} run.dir={self.folder}/{number}"
            for number, run in enumerate(runs)
        )
        path = self.folder / "runs.yaml"
        path.write_text("".join(f"- {run}\n" for run in named))
        return path

    async def play(
        self, *runs: str, shutdown: Shutdown | None = None, at_once: int = 64, log_prefix: str = ""
    ) -> PlayResult:
        """Play them in this process."""
        output = io.StringIO()
        shutdown = shutdown or Shutdown(lambda line: None, 60.0)
        planned = set_up_runs(Grid(self.file(*runs), self.shared).runs())
        try:
            console = Console(file=output, width=200)
            return await shutdown.run(play_runs(planned, console, shutdown, at_once, log_prefix))
        finally:
            self.printed = output.getvalue()


@pytest.fixture(scope="module")
def both(shared_corridor: Runs) -> tuple[Sweep, PlayResult]:
    """Two runs that were played side by side to their ends."""
    both = Sweep(shared_corridor(script(walker, LEARN)))
    return both, asyncio.run(both.play("method=speedrunner", "method=react method.train=true run.seed=1"))


def test_each_run_is_whole_and_has_its_own_ledger_and_the_accounts_hold_over_all(
    both: tuple[Sweep, PlayResult],
) -> None:
    played, result = both
    assert result.failures == {}
    (reconciliation,) = result.reconciliations
    assert reconciliation.agrees
    first, second = (played.folder / number for number in ("0", "1"))
    for folder in (first, second):
        check_finished(folder, PLANNED, sleeps=2)
    usages = [row.usage for folder in (first, second) for row in load(folder).requests]
    assert sum(usage.prompt for usage in usages if usage) == reconciliation.ledger.prompt
    assert load(first).reconciliations == load(second).reconciliations == [reconciliation]
    assert [len(load(folder).policies.load(2).skills) for folder in (first, second)] == [1, 0]
    assert re.search(r"^0: sleep/0001", played.printed, re.MULTILINE)
    assert re.search(r"^1: wake/0000 2/2", played.printed, re.MULTILINE)


def test_the_runs_are_played_side_by_side(both: tuple[Sweep, PlayResult]) -> None:
    times = [
        [row.time for row in load(both[0].folder / number).requests if row.labels["role"] == "actor"]
        for number in ("0", "1")
    ]
    assert min(times[0]) < max(times[1])
    assert min(times[1]) < max(times[0])


async def test_a_run_that_stops_leaves_the_others_alone_and_goes_on_later(
    corridor: Runs, tmp_path: Path
) -> None:
    broken = True

    def policy(request: Request) -> Answer:
        if broken and "write_skill" in request.tools:
            return refuse(404, "no")
        return script(walker, LEARN)(request)

    both = Sweep(corridor(policy))
    result = await both.play("method=speedrunner", "method=react")
    assert (
        load(tmp_path / "0").reconciliations == load(tmp_path / "1").reconciliations == result.reconciliations
    )
    assert list(result.failures) == [f"{tmp_path}/0"]
    assert "status 404: no" in result.failures[f"{tmp_path}/0"]
    assert "0: stopped: status 404" in both.printed
    assert "sweep: 1 of 2 runs are finished, 1 stopped" in both.printed
    broken = False
    assert (await both.play("method=speedrunner", "method=react")).failures == {}
    assert "sweep: 1 of 2 runs are finished, 1 waiting" in both.printed
    check_finished(tmp_path / "0", PLANNED, sleeps=2)


async def test_a_drain_ends_all_of_them_in_good_order(corridor: Runs, tmp_path: Path) -> None:
    shutdown = Shutdown(lambda line: None, 60.0)
    seen = 0

    def policy(request: Request) -> Answer:
        nonlocal seen
        seen += 1
        if seen == 9:
            loop.call_soon_threadsafe(shutdown._on_signal, 15)
        return script(walker, LEARN)(request)

    loop = asyncio.get_running_loop()
    both = Sweep(corridor(policy))
    with pytest.raises(Interrupted):
        await both.play("method=speedrunner", "method=react", shutdown=shutdown)
    assert (await both.play("method=speedrunner", "method=react")).failures == {}
    check_finished(tmp_path / "0", PLANNED, sleeps=2)


async def test_a_signal_before_the_second_server_has_started_cancels_its_start(
    corridor: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutdown = Shutdown(lambda line: None, 60.0)
    fitted: list[Setup] = []

    async def fit(setup: Setup, say: Callable[[str], None]) -> Setup:
        if fitted:
            shutdown._on_signal(signal.SIGINT)
            await asyncio.sleep(0.01)
        fitted.append(setup)
        return await fit_model(setup, say)

    monkeypatch.setattr(player, "fit_model", fit)
    both = Sweep(corridor(script(walker)))
    react = "method=react run.rollouts=0"
    with pytest.raises(Interrupted):
        await both.play(react, f"{react} serving.request_timeout_s=99", shutdown=shutdown)
    assert len(fitted) == 1


class TestARunThatBeginsWithAnother_sPolicy:
    @staticmethod
    def entries(one: Sweep, setting: str = "") -> tuple[str, ...]:
        """The last of three skills is evaluated by a run that is listed before the one that learns."""
        learn = f"{{method: speedrunner, run.dir: {one.folder}/learn{setting}}}"
        return (
            f"{{method: speedrunner, run.rollouts: 0, run.dir: {one.folder}/after, "
            f"run.start_from: {{run.dir: {one.folder}/learn{setting}}}}}",
            learn,
        )

    async def test_is_played_after_it(self, corridor: Runs, tmp_path: Path) -> None:
        one = Sweep(corridor(script(walker, LEARN)))
        assert (await one.play(*self.entries(one))).failures == {}
        learn, after = load(tmp_path / "learn"), load(tmp_path / "after")
        assert after.policies.load(0).module == learn.policies.load(2).module != ""
        assert max(row.time for row in learn.requests) <= min(
            row.time for row in after.requests if row.labels["role"] == "actor"
        )
        assert [row.skill_calls for row in after.episodes] == [1, 1]

    @pytest.mark.parametrize("setting", ["", ", serving.request_timeout_s: 99"])
    async def test_is_not_begun_and_has_no_server_where_that_has_stopped(
        self, corridor: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
    ) -> None:
        fit = AsyncMock(side_effect=fit_model)
        monkeypatch.setattr(player, "fit_model", fit)

        def policy(request: Request) -> Answer:
            return refuse(404, "no") if "write_skill" in request.tools else script(walker)(request)

        one = Sweep(corridor(policy))
        failures = (await one.play(*self.entries(one, setting))).failures
        assert fit.await_count == 1
        assert "status 404: no" in failures[f"{tmp_path}/learn"]
        assert failures[f"{tmp_path}/after"] == f"it starts from {tmp_path}/learn, which is not finished"
        assert not (tmp_path / "after").exists()


def at_the_same_time(*runs: Path) -> int:
    """How many requests of actors the engine had at a time, at most."""
    steps: list[tuple[float, int]] = []
    for run in runs:
        for row in load(run).requests:
            if row.labels["role"] == "actor":
                began = row.time - row.seconds + 1e-4  # the ledger rounds seconds to four digits
                steps += [(min(began, row.time), 1), (row.time, -1)]
    return max(itertools.accumulate(step for _, step in sorted(steps)))


async def test_no_more_episodes_are_played_at_once_than_there_are_slots(
    corridor: Runs, tmp_path: Path
) -> None:
    arrived, two_are_there = itertools.count(1), threading.Event()

    def wait_for_another(request: Request) -> Answer:
        if next(arrived) == 2:
            two_are_there.set()
        return replace(walker(request), after=two_are_there)

    one = Sweep(corridor(script(wait_for_another)))
    entries = [f"method=react run.rollouts=0 run.test_episodes=8 run.in_flight={many}" for many in (8, 4)]
    await one.play(*entries, at_once=2)
    assert at_the_same_time(tmp_path / "0", tmp_path / "1") == 2


async def test_a_sweep_of_a_single_run_has_slots_and_the_log_of_its_part(
    corridor: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = Mock(side_effect=serve_model)
    monkeypatch.setattr(player, "serve_model", serve)
    one = Sweep(corridor(script(walker)))
    entry = "method=react run.rollouts=0 run.test_episodes=4 run.in_flight=4"
    assert (await one.play(entry, at_once=1, log_prefix="part1of2_")).failures == {}
    assert at_the_same_time(tmp_path / "0") == 1
    assert serve.call_args.args[1] == tmp_path / "part1of2_server.log"


async def test_runs_of_two_models_in_folders_of_one_name_are_played_one_model_after_the_other(
    corridor: Runs, tmp_path: Path
) -> None:
    one = Sweep(corridor(script(walker)))
    react = "method=react run.rollouts=0 run.dir="
    result = await one.play(
        f"{react}{tmp_path}/a/x",
        f"{react}{tmp_path}/b/x serving.request_timeout_s=99",
        f"{react}{tmp_path}/c/x run.seed=1",
    )
    assert result.failures == {}
    assert one.printed.endswith("sweep: 3 of 3 runs are finished\n")
    assert len(result.reconciliations) == 2
    first, other, second = (load(tmp_path / name / "x").requests for name in "abc")
    assert max(row.time for row in (*first, *second)) <= min(row.time for row in other)


async def test_a_defect_in_one_run_leaves_the_others_alone_and_is_raised_at_the_end(
    corridor: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = OpenRun.play

    async def broken(self: OpenRun, *arguments: Any) -> None:
        if self.directory.path.name == "0":
            raise KeyError("a defect")
        await play(self, *arguments)

    monkeypatch.setattr(OpenRun, "play", broken)
    one = Sweep(corridor(script(walker)))
    with pytest.raises(KeyError, match="a defect"):
        await one.play("method=react run.rollouts=0", "method=react run.rollouts=0 run.seed=1")
    assert "0: stopped: 'a defect'" in one.printed
    assert len(load(tmp_path / "1").episodes) == 2
    assert not (tmp_path / "0" / "lock").exists()


async def test_episodes_that_are_played_again_take_slots_too(corridor: Runs, tmp_path: Path) -> None:
    def policy(request: Request) -> Answer:
        propose = "propose_functions" in request.tools
        return call("propose_functions", source=TO_FLAG) if propose else script(walker)(request)

    one = Sweep(corridor(policy))
    await one.play("method=asi_replay", "method=asi_replay run.seed=1", at_once=1)
    assert at_the_same_time(tmp_path / "0", tmp_path / "1") == 1
    assert [len(record.episodes) for record in load(tmp_path / "0").sleeps] == [1, 0]


def test_the_command_shows_what_was_played_where_a_run_could_not_begin(
    corridor: Runs, tmp_path: Path
) -> None:
    one = Sweep(corridor(script(walker)))
    file = one.file("method=react", "method=react run.seed=1")
    with RunDirectory.open_for_writing(tmp_path / "0"):
        done = in_process("sweep", str(file), *one.shared, "run.rollouts=0", f"--dir={tmp_path}")
    assert done.returncode == 1
    assert "1 of 2 runs stopped" in complaint(done)
    assert "is in use by process" in complaint(done)
    assert re.search(r"^react on .* with tiny-random", done.stdout, re.MULTILINE)
    assert len(load(tmp_path / "1").episodes) == 2


async def test_what_cannot_go_on_is_told_before_anything_starts(corridor: Runs, tmp_path: Path) -> None:
    one = Sweep(corridor(script(walker)))
    await one.play("method=react run.rollouts=0")
    with pytest.raises(RunDirectoryError, match=r"has another configuration: run\.seed: 0 -> 5"):
        await one.play("method=react run.rollouts=0 run.seed=5", "method=react run.rollouts=0")
    with pytest.raises(RunDirectoryError, match="none does not exist"):
        await one.play(f"method=react run.rollouts=0 run.dir={tmp_path}/x run.start_from={tmp_path}/none")
    assert not (tmp_path / "x").exists()


def test_the_command_prints_each_run_and_says_which_stopped(corridor: Runs, tmp_path: Path) -> None:
    both = Sweep(corridor(script(walker, LEARN)))
    file = both.file("method=speedrunner", "method=react")
    done = in_process("sweep", str(file), *both.shared, f"--dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "2 runs with tiny-random" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if re.search(r" \d\.\d{3} +0% ", line)]
    assert [row[:3] for row in rows[:3]] == [["0", "0", "1.000"], ["2", "1.000", "0%"], ["4", "1.000", "0%"]]
    assert [row[:3] for row in rows[3:4]] == [["1", "0", "1.000"]]
    assert done.stdout.endswith(f"The runs' files are in {tmp_path}\n")
    assert done.stdout.count("they agree to the token") == 1


DEATH = ServerDied("the engine died: killed by SIGKILL\nand more")


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "PAUSE_S", 0.0)


async def survived(ends: list[Exception | str]) -> tuple[str, list[str]]:
    """The result after work that ends like this each time, and what was said."""
    said: list[str] = []
    left = iter(ends)

    async def play() -> str:
        end = next(left)
        if isinstance(end, Exception):
            raise end
        return end

    return await survive_deaths(play, ServerDeaths(), Shutdown(said.append), said.append), said


@pytest.mark.usefixtures("no_pause")
async def test_work_goes_on_with_another_server() -> None:
    result, said = await survived([DEATH, ServerFailed("no memory left"), "done"])
    assert result == "done"
    assert said == [
        "the engine died: killed by SIGKILL; a new one is started, and the run resumes",
        "no memory left; a new one is started, and the run resumes",
    ]


@pytest.mark.parametrize("error", [ServerFailed("no weights"), EngineDead("refuses the API key")])
async def test_what_no_new_server_mends_ends_the_work(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        await survived([error, "done"])


@pytest.mark.usefixtures("no_pause")
async def test_too_many_deaths_end_it() -> None:
    with pytest.raises(ServerDied):
        await survived([DEATH] * (MOST_DEATHS + 1) + ["done"])
    result, said = await survived([DEATH] * MOST_DEATHS + ["done"])
    assert (result, len(said)) == ("done", MOST_DEATHS)


async def test_a_signal_between_two_servers_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "PAUSE_S", 1000.0)
    shutdown = Shutdown(lambda line: None)

    async def play() -> None:
        shutdown.is_cleaning = True
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)
        raise DEATH

    with pytest.raises(Interrupted):
        await shutdown.run(survive_deaths(play, ServerDeaths(), shutdown, lambda line: None))
