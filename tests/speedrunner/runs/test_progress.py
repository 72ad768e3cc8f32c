"""What people see of a run while it goes on."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from serving.meter import LedgerRow, Meter
from serving.usage import Prices, Usage
from speedrunner.runs import progress as showing
from speedrunner.runs.progress import Progress
from speedrunner.store.records import Ending
from tests.speedrunner.run_samples import trajectory


@pytest.fixture
def meter() -> Meter:
    meter = Meter(lambda row: None, Prices(uncached=1.0, cached=0.5, output=10.0))
    meter.record(
        LedgerRow(
            request="r",
            retry=0,
            time=0.0,
            labels={},
            model="tiny",
            status="ok",
            wasted=False,
            usage=Usage(prompt=1000, cached=750, completion=100),
            seconds=0.1,
        )
    )
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
            progress.episode("wake/0001", trajectory(ending=Ending.CALL_LIMIT))
    *_, line = output.getvalue().splitlines()  # not wrapped, however narrow the console
    assert line.startswith("wake/0001 3/3 · episodes 6/10 · 1 success, 1 call_limit · ")
    assert "75% of prompt tokens cached · 0.0016 USD · " in line
    assert re.search(r"[\d.]+ turns/s · \d+ output tokens/s", line)
    assert re.search(r"\d+ min \d\d s left$", line)


def test_of_a_finished_run_nothing_is_left(meter: Meter) -> None:
    console, output = plain()
    with Progress(console, total=1, finished=0) as progress:
        progress.begin(meter)
        with progress.step("evaluate/0000", 1, 0):
            progress.episode("evaluate/0000", trajectory())
    assert "left" not in output.getvalue().splitlines()[-1]


def test_plain_lines_do_not_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(showing.time, "monotonic", lambda: clock[0])
    console, output = plain()
    progress = Progress(console, total=1, finished=0)
    for _ in range(60):
        progress.waiting("starting vLLM")
        clock[0] += 1.0
    assert output.getvalue().splitlines() == ["starting vLLM"] * 4


def test_on_a_terminal_one_line_is_alive_and_said_lines_stay() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=60)
    with Progress(console, total=1, finished=0) as progress:
        progress.say("this stays")
        progress.waiting("starting vLLM")
    text = output.getvalue()
    assert "this stays" in text
    assert "\x1b[?25h" in text  # the cursor is shown again


def test_texts_are_shown_as_they_are() -> None:
    console, output = plain()
    Progress(console, total=1, finished=0).say("[bold]runs/a[1] :smile:")
    assert output.getvalue() == "[bold]runs/a[1] :smile:\n"
