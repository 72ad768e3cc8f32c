"""What people see of a run while it goes on."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from serving.meter import LedgerRow, Meter
from serving.usage import Prices, Usage
from speedrunner.runs import progress as showing
from speedrunner.runs.progress import Progress, Ticks
from speedrunner.store.records import Termination
from tests.speedrunner.run_samples import trajectory

REQUEST = LedgerRow(
    request="r",
    retry=0,
    time=0.0,
    labels={},
    model="tiny-random",
    status="ok",
    wasted=False,
    usage=Usage(prompt=1000, cached=750, completion=100),
    seconds=0.1,
)


@pytest.fixture
def meter() -> Meter:
    meter = Meter(lambda row: None, Prices(uncached=1.0, cached=0.5, output=10.0))
    meter.record(REQUEST)
    return meter


def plain() -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, width=20), output


def test_a_finished_step_is_one_plain_line_with_everything_in_it(meter: Meter) -> None:
    console, output = plain()
    with Progress(console, total=10, finished=4) as progress:
        progress.begin(meter)
        with progress.step("wake/0001", 3, 1):
            progress.episode("wake/0001", trajectory())
            progress.episode("wake/0001", trajectory(termination=Termination.CALL_LIMIT))
    *_, line = output.getvalue().splitlines()  # not wrapped, however narrow the console
    assert line.startswith("wake/0001 3/3 · episodes 6/10 · 1 success, 1 call_limit · ")
    assert line.endswith("75% of prompt tokens cached · 0.0016 USD")
    assert re.search(r"[\d.]+ turns/s · \d+ output tokens/s", line)
    assert "left" not in line  # two episodes are too few to tell


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(showing.time, "monotonic", lambda: clock[0])
    return clock


def ask(meter: Meter, calls: int) -> None:
    for _ in range(calls):
        meter.record(REQUEST)


def play(progress: Progress, meter: Meter, clock: list[float], step: str, seconds: list[float]) -> None:
    """Play episodes one after another, with one LLM call for each turn."""
    with progress.step(step, len(seconds), 0):
        for each in seconds:
            clock[0] += each
            episode = trajectory()
            ask(meter, len(episode.turns))
            progress.episode(step, episode)


@pytest.mark.parametrize(("total", "left"), [(20, " · 24 s left"), (12, " USD")])
def test_the_remaining_time_is_that_of_the_episodes_so_far_and_none_at_the_end(
    meter: Meter, clock: list[float], total: int, left: str
) -> None:
    console, output = plain()
    with Progress(console, total, finished=2) as progress:
        progress.begin(meter)
        play(progress, meter, clock, "wake/0000", [3.0] * 10)
    assert output.getvalue().splitlines()[-1].endswith(left)


def test_plain_lines_of_all_runs_together_do_not_flood(clock: list[float]) -> None:
    console, output = plain()
    ticks = Ticks()
    runs = [Progress(console, 1, 0, name, ticks) for name in ("a", "b")]
    for _ in range(60):
        for progress in runs:
            progress.waiting("starting vLLM")
        clock[0] += 1.0
    assert output.getvalue().splitlines() == ["a: starting vLLM"] * 4


def test_what_a_run_waits_for_is_shown_until_it_is_there(meter: Meter) -> None:
    console, _ = plain()
    progress = Progress(console, total=1, finished=0)
    progress.begin(meter)
    with progress.step("wake/0000", 1, 0):
        for line in ("starting vLLM again, 598 s", "starting vLLM again, 599 s"):
            progress.waiting(line)
            assert str(progress.text()) == line
        progress.say("vLLM is ready after 600 s")
        assert str(progress.text()).startswith("wake/0000 0/1 · episodes 0/1")


def test_a_sleep_shows_its_turns(clock: list[float]) -> None:
    console, output = plain()
    with Progress(console, total=2, finished=0) as progress:
        progress.begin(Meter(lambda row: None, Prices(uncached=0, cached=0, output=0)))
        with progress.step("wake/0000", 1, 0):
            progress.episode("wake/0000", trajectory())
        with progress.step("sleep/0001", 0, 0):
            for _ in range(2):
                clock[0] += 20.0
                progress.turn("sleep/0001")
    lines = output.getvalue().splitlines()
    assert [line.partition(" · ")[0] for line in lines[-2:]] == ["sleep/0001 turn 1", "sleep/0001 turn 2"]
    assert not any("USD" in line for line in lines)
