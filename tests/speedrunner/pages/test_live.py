"""The page of a running sweep."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from serving.engine.metrics import Counters
from serving.reconciliation import Reconciliation
from serving.usage import Usage
from speedrunner.pages.live import live_page
from speedrunner.pages.site import Site
from speedrunner.store.records import EpisodeRow, Termination, TrainingEnd
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.sweep_plans import PlannedRun, SweepPlan, note_sweep
from tests.page_elements import HOSTILE, Elements
from tests.speedrunner.results.ledgers import row
from tests.speedrunner.results.small_runs import TURN_USD, SmallRun
from tests.speedrunner.run_samples import trajectory


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Path]:
    """One run that a process plays, one that stopped, one that is planned."""
    stopped = SmallRun(tmp_path / "stopped")
    stopped.policy(0, {})
    stopped.test(0, 0, [0.5])
    playing = SmallRun(tmp_path / "playing")
    playing.policy(0, {})
    playing.test(0, 0, [0.5, 1.0])
    playing.train(0, [None, None])
    playing.sleep(1)
    planned = [PlannedRun(str(tmp_path / name)) for name in ("stopped", "playing", "planned")]
    note_sweep(tmp_path, SweepPlan("speedrunner sweep experiment=main", planned))
    with RunDirectory.open_for_writing(tmp_path / "playing") as run:
        yield run.path


def play(run: Path, *, error: str | None = None) -> None:
    """Two requests of this process within the last minute, and a fault."""
    now = time.time()
    with (run / "requests.jsonl").open("ab") as file:
        for ago, usage in ((30.0, Usage(1000, 600, 200)), (10.0, Usage(1000, 600, 200)), (1.0, None)):
            request = row(now - ago, usage, status="ok" if usage else "failed")
            file.write(msgspec.json.encode(replace(request, error=None if usage else error)) + b"\n")
    counters = Counters(prompt=2000, cached=1500, generated=400)
    reading = Reconciliation(
        model="m", ledger=counters, engine=counters, unreported=0, at_most=Counters(), ours=True, since=now,
        time=now, clients=1, in_passing=True,
    )  # fmt: skip
    (run / "reading.json").write_bytes(msgspec.json.encode([reading]))


def shown(folder: Path) -> str:
    answer = Site(folder).answer("live.html", {})
    assert answer.status == 200, answer.content
    found = Elements(answer.content.decode())
    assert found.names.count("script") == 1
    assert "img" not in found.names
    return " ".join(found.text.split())


def test_each_run_has_its_state_running_ones_first(sweep: Path) -> None:
    found = live_page(sweep.parent, {"playing": sweep})
    assert [Path(each["status"].dir).name for each in found["runs"]] == ["playing", "stopped", "planned"]
    assert [each["status"].state for each in found["runs"]] == ["running", "stopped", "waiting"]
    assert found["growing"] == 4
    text = shown(sweep.parent)
    assert "3 of 10" in text
    assert "speedrunner sweep experiment=main: 1 stopped, 1 running, 1 waiting" in text


def test_a_server_has_the_rates_of_its_clients_and_what_its_engine_counted(sweep: Path) -> None:
    play(sweep)
    (server,) = live_page(sweep.parent, {"playing": sweep})["servers"]
    rates = server["rates"]
    assert (rates.requests, rates.failed, rates.cached) == (3, 1, 0.6)
    assert rates.output == pytest.approx(400 / rates.seconds)
    assert 30 <= rates.seconds < 300
    assert "75% of 2,000" in shown(sweep.parent)


def test_rates_of_long_requests_are_those_of_the_seconds_that_the_tail_covers(
    sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("speedrunner.pages.live.time", SimpleNamespace(time=lambda: now))
    rows = [replace(row(now - ago, Usage(1000, 600, 200)), seconds=200.0) for ago in range(40, 0, -1)]
    content = b"".join(msgspec.json.encode(each) + b"\n" for each in rows)
    (sweep / "requests.jsonl").write_bytes(content)
    (whole,) = live_page(sweep.parent, {"playing": sweep})["servers"]
    assert whole["rates"].seconds == pytest.approx(240.0)  # these are all its requests
    (sweep / "requests.jsonl").write_bytes(content + content)
    monkeypatch.setattr("speedrunner.pages.live.TAIL_BYTES", len(content) + 1)
    (cut,) = live_page(sweep.parent, {"playing": sweep})["servers"]
    assert cut["rates"].requests == 40
    assert cut["rates"].seconds == pytest.approx(40.0)


def test_what_is_long_ago_is_in_no_rate(sweep: Path) -> None:
    assert live_page(sweep.parent, {"playing": sweep})["servers"] == []
    assert "No run has had an answer in the last 5 minutes" in shown(sweep.parent)


def test_time_left_follows_from_requests_and_is_not_guessed_from_few_episodes(sweep: Path) -> None:
    play(sweep)
    (first, *_) = live_page(sweep.parent, {"playing": sweep})["runs"]
    rates = first["rates"]
    # 4 requests in 3 episodes, and a sleep of 1 s; 7 of 10 episodes and a sleep are left.
    assert first["left"] == pytest.approx(7 * (4 / 3) * rates.seconds / rates.requests + 1.0)
    rows = (sweep / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (sweep / "episodes.jsonl").write_bytes(rows[0])
    (first, *_) = live_page(sweep.parent, {"playing": sweep})["runs"]
    assert first["left"] is None


def test_no_sleep_is_left_after_the_end_of_training(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "playing")
    run.policy(0, {})
    run.train(0, [None, None])
    run.test(0, 0, [0.5, 1.0])
    run.sleep(1)
    with RunDirectory.open_for_writing(run.path) as directory:
        play(run.path)
        (planned,) = live_page(tmp_path, {"playing": run.path})["runs"]
        directory.end_training(TrainingEnd(rollouts=2, sleeps=1))
        (ended,) = live_page(tmp_path, {"playing": run.path})["runs"]
    per_episode = sum(each.llm_calls for each in load(run.path).rows) / 3
    for page, episodes, sleeps_s in ((planned, 7, 1.0), (ended, 3, 0.0)):
        a_request_s = page["rates"].seconds / page["rates"].requests
        assert page["left"] == pytest.approx(episodes * per_episode * a_request_s + sleeps_s)


def test_cost_is_that_of_finished_episodes_at_the_actor_s_prices(sweep: Path) -> None:
    content = (sweep / "processes.jsonl").read_text().replace('"m":{', '"tiny-random":{', 1)
    (sweep / "processes.jsonl").write_text(content)
    (first, *_) = live_page(sweep.parent, {"playing": sweep})["runs"]
    assert first["usd"] == pytest.approx(4 * TURN_USD)


def test_faults_have_their_reasons_and_hostile_text_stays_text(sweep: Path) -> None:
    fault = trajectory(
        "train/0001",
        termination=Termination.ENGINE_ERROR,
        outcome=None,
        error=f"engine: {HOSTILE}\nTraceback",
    )
    with (sweep / "trajectories/batch_0000.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(fault) + b"\n")
    with (sweep / "episodes.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(EpisodeRow.of(fault, "train", 0)) + b"\n")
    play(sweep, error=HOSTILE)
    text = shown(sweep.parent)
    assert "playing, train/0001 : engine error" in text.replace("0001:", "0001 :")
    assert "1 request failed in the last 5 minutes" in text
    assert text.count("alert(1)") >= 2
    assert "Traceback" not in text


def test_a_damaged_run_says_why_and_hides_no_other(sweep: Path) -> None:
    (sweep.parent / "stopped/config.yaml").write_text("[")
    text = shown(sweep.parent)
    assert "config.yaml" in text
    assert "playing" in text
