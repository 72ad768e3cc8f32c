"""Whole runs as commands, with the tiny model and a real vLLM."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.cards import CHECKOUT
from serving.engine.endpoint import Endpoint
from serving.usage import Usage
from speedrunner.store.data import load
from speedrunner.store.records import Ending
from tests.scripted_runs import check_finished, command, speedrunner

RING = (
    "env=tests.odd_envs:Ring",
    *("run.rollouts=6", "run.sleep_every=3", "run.eval_every=3", "run.test_episodes=2", "run.in_flight=2"),
)
"""About 75 requests."""
PLANNED = [
    *(f"train/{number:04d}" for number in range(6)),
    *(f"test/{checkpoint:04d}/{number:04d}" for checkpoint in (0, 3, 6) for number in (0, 1)),
]


async def idle(endpoint: Endpoint) -> None:
    """Wait until the engine has noticed that killed clients are gone."""
    while not re.search(
        r"^vllm:num_requests_running\{.*\} 0\.0$", (await endpoint.get("/metrics")).text, re.M
    ):
        pass


async def test_a_run_is_valid_and_accounted_for_to_the_token(vllm_endpoint: Endpoint, tmp_path: Path) -> None:
    await idle(vllm_endpoint)
    run = tmp_path / "run"
    done = speedrunner(
        *("run", "env=babyai", "model=tiny", f"serving.url={vllm_endpoint}", f"run.dir={run}"),
        *("run.rollouts=4", "run.sleep_every=2", "run.eval_every=4", "run.test_episodes=2"),
        timeout_s=600,
    )
    assert (done.returncode, done.stderr) == (0, "")
    data = load(run)
    check_finished(
        run,
        [f"train/{n:04d}" for n in range(4)] + [f"test/{c:04d}/{n:04d}" for c in (0, 4) for n in (0, 1)],
        sleeps=2,
    )

    # Every call is valid: an untrained model writes nonsense, but within the grammar.
    assert {row.status for row in data.requests} == {"ok"}
    assert {row.invalid_calls for row in data.episodes} == {0}
    assert {row.ending for row in data.episodes} <= {Ending.CALL_LIMIT, Ending.SUCCESS}
    turns = [turn for record in data.sleeps for agent in record.agents for turn in agent.turns]
    assert turns
    assert all(turn.call is not None for turn in turns)
    assert all(edit.error for record in data.sleeps for edit in record.edits)

    # The printed account is the ledger's sum, and the engine's.
    total = sum((row.usage or Usage() for row in data.requests), Usage())
    account = re.search(
        r"prompt (\d+) / (\d+), cached (\d+) / (\d+), generated (\d+) / (\d+): (.*)", done.stdout
    )
    assert account is not None
    assert account[7] == "they agree to the token."
    assert [int(number) for number in account.groups()[:6]] == [
        *(total.prompt, total.prompt, total.cached, total.cached),
        *(total.completion, total.completion),
    ]
    assert total.cached > 0.5 * total.prompt
    assert f"The run's files are in {run}" in done.stdout


def ledger_lines(run: Path) -> int:
    """How far a run is: rows of episodes and sleeps; probes and the like are not counted."""
    file = run / "requests.jsonl"
    return file.read_bytes().count(b'"episode":') if file.exists() else 0


def begin(run: Path, endpoint: Endpoint) -> subprocess.Popen[str]:
    """Start the run, or go on with it."""
    return subprocess.Popen(
        command("run", *RING, "model=tiny", f"serving.url={endpoint}", f"run.dir={run}"),
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def reached(process: subprocess.Popen[str], there: Callable[[], bool]) -> bool:
    """Wait until a run has come as far as that; `False` if it ended before."""
    while not there():
        if process.poll() is not None:
            return there()
        time.sleep(0.001)
    return True


def finish(run: Path, endpoint: Endpoint) -> None:
    """Go on to the end."""
    process = begin(run, endpoint)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, ""), out[-2000:]


def kill_and_resume(run: Path, endpoint: Endpoint, instants: list[Callable[[], bool]]) -> None:
    """SIGKILL the run at each instant and go on with it every time."""
    for instant in instants:
        with begin(run, endpoint) as process:
            assert reached(process, instant), process.communicate()
            process.kill()
    finish(run, endpoint)
    check_finished(run, PLANNED, sleeps=2)


def after_lines(run: Path, seed: int, count: int, most: int) -> list[Callable[[], bool]]:
    """Random instants: a random number of requests after the one before."""
    draw = random.Random(seed)

    def instant(further: int) -> Callable[[], bool]:
        begun: list[int] = []

        def there() -> bool:
            begun.append(ledger_lines(run))
            return begun[-1] >= begun[0] + further

        return there

    return [instant(draw.randint(1, most)) for _ in range(count)]


def test_killed_at_six_random_instants_it_loses_and_doubles_nothing(
    vllm_endpoint: Endpoint, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # Besides random ones: in the middle of what a sleep writes, and before the ledger begins.
    instants = [
        lambda: (run / "lock").exists(),
        *after_lines(run, seed=6, count=2, most=25),
        lambda: (run / "sleeps" / "0001.json").exists(),
        *after_lines(run, seed=7, count=1, most=20),
        lambda: (run / "policies" / "v0002").exists(),
    ]
    kill_and_resume(run, vllm_endpoint, instants)
    assert any(row.wasted for row in load(run).requests)


@pytest.mark.slow
def test_killed_at_twenty_random_instants_it_loses_and_doubles_nothing(
    vllm_endpoint: Endpoint, tmp_path: Path
) -> None:
    # Short distances: a run that is killed makes little progress, and must end after the last kill only.
    run = tmp_path / "run"
    kill_and_resume(run, vllm_endpoint, after_lines(run, seed=20, count=20, most=5))


def test_signals_stop_it_and_it_goes_on(vllm_endpoint: Endpoint, tmp_path: Path) -> None:
    run = tmp_path / "run"

    with begin(run, vllm_endpoint) as process:
        assert reached(process, lambda: ledger_lines(run) >= 4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert out.rstrip().endswith("stopped by SIGINT; what is recorded stays, the same command goes on")
    assert not (run / "lock").exists()
    # What was in flight had time enough to end.
    assert not any(row.wasted for row in load(run).requests if "episode" in row.labels)

    with begin(run, vllm_endpoint) as process:
        before = ledger_lines(run)
        assert reached(process, lambda: ledger_lines(run) >= before + 4)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "")

    finish(run, vllm_endpoint)
    check_finished(run, PLANNED, sleeps=2)
    assert len(json.loads((run / "state.json").read_text())["finished"]) == 7
