"""Whole runs as commands, with the random model and a real vLLM."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint
from serving.model_configs import CHECKOUT
from serving.usage import Usage
from speedrunner.store.records import Termination
from speedrunner.store.run_data import load
from tests.engine.conftest import ShortModelConfig
from tests.processes import HANGS_S
from tests.scripted_runs import check_finished, command, speedrunner
from tests.tampered_runs import statuses, verified

RING = (
    "env=tests.odd_envs:Ring",
    *("run.rollouts=6", "run.sleep_every=3", "run.eval_every=3", "run.test_episodes=2", "run.in_flight=2"),
)
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


async def test_a_run_is_valid_and_accounted_for_to_the_token(
    vllm_endpoint: Endpoint, short_model_config: ShortModelConfig, tmp_path: Path
) -> None:
    await idle(vllm_endpoint)
    run = tmp_path / "run"
    done = speedrunner(
        *(
            "run",
            "env=babyai",
            short_model_config(max_calls=8, string_tokens=40),
            f"serving.url={vllm_endpoint}",
            f"run.dir={run}",
        ),
        *("run.rollouts=2", "run.sleep_every=1", "run.eval_every=2", "run.test_episodes=1"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    data = load(run)
    check_finished(
        run,
        ["train/0000", "train/0001", "test/0000/0000", "test/0002/0000"],
        sleeps=2,
    )

    # Every call is valid: an untrained model writes nonsense, but within the grammar.
    assert {row.status for row in data.requests} == {"ok"}
    assert {row.invalid_calls for row in data.episodes} == {0}
    assert {row.termination for row in data.episodes} <= {Termination.CALL_LIMIT, Termination.SUCCESS}
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

    found = await verified(run)
    assert set(statuses(found).values()) == {"ok"}, found
    assert "recorded usage alone in 0" in found["prompts"].text


@dataclass
class Ring:
    """A run of about 75 requests, which processes begin and go on with."""

    folder: Path
    where: tuple[str, ...]
    """The model and its server."""

    @property
    def lines(self) -> int:
        """How far it is: rows of episodes and sleeps; probes and the like are not counted."""
        file = self.folder / "requests.jsonl"
        return file.read_bytes().count(b'"episode":') if file.exists() else 0

    def begin(self) -> subprocess.Popen[str]:
        """Start it, or go on with it."""
        return subprocess.Popen(
            command("run", *RING, *self.where, f"run.dir={self.folder}"),
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> None:
        """Go on to the end, where it must be whole."""
        process = self.begin()
        out, err = process.communicate(timeout=HANGS_S)
        assert (process.returncode, err) == (0, ""), out[-2000:]
        check_finished(self.folder, PLANNED, sleeps=2)
        assert set(statuses(asyncio.run(verified(self.folder))).values()) == {"ok"}

    def kill_and_resume(self, instants: list[Callable[[], bool]]) -> None:
        """SIGKILL it at each instant and go on with it every time."""
        for instant in instants:
            with self.begin() as process:
                assert reached(process, instant), process.communicate()
                process.kill()
        self.finish()

    def after_lines(self, seed: int, count: int, most: int) -> list[Callable[[], bool]]:
        """Random instants: a random number of requests after the one before."""
        draw = random.Random(seed)

        def instant(further: int) -> Callable[[], bool]:
            begun: list[int] = []

            def there() -> bool:
                begun.append(self.lines)
                return begun[-1] >= begun[0] + further

            return there

        return [instant(draw.randint(1, most)) for _ in range(count)]


@pytest.fixture
def ring(vllm_endpoint: Endpoint, short_model_config: ShortModelConfig, tmp_path: Path) -> Ring:
    return Ring(tmp_path / "run", (short_model_config(string_tokens=40), f"serving.url={vllm_endpoint}"))


def reached(process: subprocess.Popen[str], there: Callable[[], bool]) -> bool:
    """Wait until a run has come as far as that; `False` if it ended before."""
    while not there():
        if process.poll() is not None:
            return there()
        time.sleep(0.001)
    return True


@pytest.mark.slow
def test_killed_at_fifteen_instants_it_loses_and_doubles_nothing(ring: Ring) -> None:
    # Besides random ones: before the ledger begins, and in the middle of what each sleep writes. Distances
    # are short: a run that is killed makes little progress, and must end after the last kill only.
    instants = [
        lambda: (ring.folder / "lock").exists(),
        *ring.after_lines(seed=6, count=6, most=5),
        lambda: (ring.folder / "sleeps" / "0001.json").exists(),
        *ring.after_lines(seed=7, count=6, most=5),
        lambda: (ring.folder / "policies" / "v0002").exists(),
    ]
    ring.kill_and_resume(instants)
    assert any(row.wasted for row in load(ring.folder).requests)


@pytest.mark.slow
def test_signals_stop_it_and_it_goes_on(ring: Ring) -> None:
    with ring.begin() as process:
        assert reached(process, lambda: ring.lines >= 4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANGS_S)
    assert (process.returncode, err) == (130, "")
    assert out.rstrip().endswith(
        "stopped by SIGINT; finished work is recorded. Rerun the same command to resume"
    )
    assert not (ring.folder / "lock").exists()
    # What was in flight had time enough to end.
    assert not any(row.wasted for row in load(ring.folder).requests if "episode" in row.labels)

    with ring.begin() as process:
        before = ring.lines
        assert reached(process, lambda: ring.lines >= before + 4)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANGS_S)
    assert (process.returncode, err) == (143, "")

    ring.finish()
    assert len(json.loads((ring.folder / "state.json").read_text())["finished"]) == 7
