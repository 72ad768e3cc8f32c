"""A short run of BabyAI in a process of its own, which a test watches and disturbs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from serving.model_configs import CHECKOUT
from tests.processes import HANGS_S, tree, words
from tests.scripted_runs import command

BABYAI = (
    *("env=babyai", "run.rollouts=4", "run.sleep_every=4", "run.eval_every=4", "run.test_episodes=4"),
    *("run.in_flight=4", "model.actor.max_calls=6", "model.inducer.max_calls=4"),
)
PLANNED = [
    *(f"train/{number:04d}" for number in range(4)),
    *(f"test/{checkpoint:04d}/{number:04d}" for checkpoint in (0, 4) for number in range(4)),
]


class Command:
    """A run in a process of its own."""

    def __init__(self, run: Path, *overrides: str) -> None:
        self.run = run
        settings = (*BABYAI, f"run.dir={run}", *overrides)
        chosen = {each.partition("=")[0]: each for each in settings}  # the later one counts
        self.process = subprocess.Popen(
            command("run", *chosen.values()),
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def answered(self) -> int:
        """Requests of episodes and sleeps that the engine has answered."""
        file = self.run / "requests.jsonl"
        rows = file.read_bytes().splitlines() if file.exists() else []
        return sum(b'"episode":' in row and b'"usage":{' in row for row in rows)

    def wait_for(self, there: Callable[[], bool]) -> None:
        """Until the run has come as far as that."""
        while not there():
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)

    def requests(self, further: int) -> None:
        """Until that many more requests were answered."""
        target = self.answered + further
        self.wait_for(lambda: self.answered >= target)

    @property
    def tree(self) -> list[psutil.Process]:
        """Its process and all below."""
        return tree(self.process.pid)

    def api_server(self) -> psutil.Process:
        """vLLM's API server below it."""
        (server,) = (
            each
            for each in self.tree
            if "serving.engine.api_server" in words(each) and "guard.py" not in words(each)
        )
        return server

    def end(self) -> subprocess.CompletedProcess[str]:
        """Its end."""
        out, err = self.process.communicate(timeout=HANGS_S)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)
