"""The remaining time follows the pace of recent work, never that of the first episode."""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

import pytest

from serving.model_configs import CHECKOUT
from speedrunner.runs.due import Due, count_parts
from speedrunner.runs.plan import Evaluate, Sleep, Wake
from speedrunner.runs.time_left import ENOUGH, TimeLeft
from tests.speedrunner.run_samples import TASK


class Event(NamedTuple):
    time: float
    what: str
    kind: str
    seconds: float | None


DEMO = [Event(*each) for each in json.loads((CHECKOUT / "tests/data/demo_events.json").read_text())]
"""Starts and ends of a run of `experiment=demo`, in seconds; see tests/data/README.md."""


def estimates(events: list[Event]) -> list[tuple[float, float | None]]:
    """Return what is really left after each event, and the estimate."""
    left = Counter(event.kind for event in events if event.what == "finish")
    found = TimeLeft(left, events[0].time)
    shown = []
    for event in events:
        note(found, event)
        shown.append((events[-1].time - event.time, found.estimate(event.time)))
    return shown


def note(found: TimeLeft, event: Event) -> None:
    if event.what == "finish":
        assert event.seconds is not None
        found.finish(event.kind, event.seconds, event.time)
    elif event.what == "start":
        found.start(event.kind, event.time)
    else:
        found.end(event.kind, event.time)


def is_close(real: float, estimate: float) -> bool:
    """Whether an estimate helps: at most three times too long or too short, and two seconds."""
    return real / 3 - 2 <= estimate <= 3 * real + 2


def test_nothing_is_estimated_before_enough_episodes_and_a_sleep_are_finished() -> None:
    counts = Counter[str]()
    for event, (_, estimate) in zip(DEMO, estimates(DEMO), strict=True):
        counts[event.kind] += event.what == "finish"
        if not (counts["sleep"] and counts["wake"] + counts["evaluate"] >= ENOUGH["wake"]):
            assert estimate is None


def test_the_estimates_of_a_recorded_run_are_close_from_its_first_sleep_to_its_end() -> None:
    shown = [(real, estimate) for real, estimate in estimates(DEMO) if estimate is not None]
    assert len(shown) > len(DEMO) / 2
    assert [pair for pair in shown if not is_close(*pair)] == []
    assert shown[-1][1] == 0.0


def test_a_run_that_is_resumed_in_its_last_minute_shows_no_hours() -> None:
    resumed = [event for event in DEMO if event.time > 0.8 * DEMO[-1].time]
    begins = next(index for index, event in enumerate(resumed) if event.what == "start")
    shown = [(real, estimate) for real, estimate in estimates(resumed[begins:]) if estimate is not None]
    assert shown
    assert [pair for pair in shown if not is_close(*pair)] == []


@pytest.mark.parametrize("width", [1, 8])
def test_a_first_episode_that_waits_for_a_cold_engine_changes_little(width: int) -> None:
    left = TimeLeft({"evaluate": 100}, 0.0)
    left.start("evaluate", 0.0)
    for _ in range(width):
        left.finish("evaluate", 600.0, 600.0)
    for number in range(50):
        now = 601.0 + number // width
        left.finish("evaluate", 1.0, now)
    real = (100 - 50 - width) / width
    estimate = left.estimate(now)
    assert estimate is not None
    assert is_close(real, estimate)


def test_steps_that_run_side_by_side_are_counted_once() -> None:
    left = TimeLeft({"wake": 20, "evaluate": 20}, 0.0)
    for kind in ("wake", "evaluate"):
        left.start(kind, 0.0)
    for second in range(1, 11):
        left.finish("wake", 1.0, float(second))
        left.finish("evaluate", 1.0, float(second))
    assert left.estimate(10.0) == pytest.approx(10.0)


def test_a_kind_without_a_pace_of_its_own_uses_the_similar_one() -> None:
    left = TimeLeft({"wake": 10, "evaluate": 5}, 0.0)
    left.start("wake", 0.0)
    for second in range(1, 11):
        left.finish("wake", 2.0, 2.0 * second)
    assert left.estimate(20.0) == pytest.approx(10.0)


def test_the_plan_counts_episodes_and_sleeps() -> None:
    tasks = {f"train/{number:04d}": TASK for number in range(3)}
    steps = [Due(Wake(0, 0, tasks), tasks), Due(Sleep(1, 3)), Due(Evaluate(0, 0, tasks), {})]
    assert count_parts(steps) == {"wake": 3, "sleep": 1, "evaluate": 0}


def test_pauses_between_steps_do_not_count() -> None:
    left = TimeLeft({"wake": 20}, 0.0)
    for start in (0.0, 1000.0):
        left.start("wake", start)
        for second in range(1, 6):
            left.finish("wake", 1.0, start + second)
        left.end("wake", start + 5)
    assert left.estimate(2000.0) == pytest.approx(10.0)
