"""A model over two nodes of a real Slurm: served by vLLM's CPU build, stopped, and ended in other ways."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psutil
import pytest
import yaml

from serving.cards import CHECKOUT, MODELS, load_card, prepare
from tests.processes import all_end, tree, words
from tests.slurm.cluster import cluster, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

PATIENCE_S = 120.0

OWNS = f"{sys.executable} /"
FOLLOWS = f"{sys.executable} -m serving.engine.follower"
STARTS_FOLLOWERS = "srun --nodes=1 --ntasks=1 --ntasks-per-node=1"

# It asks once when its server has started, and starts it again when it has ended.
OWNER = """
import asyncio, json, sys
from pathlib import Path
from serving.cards import load_card
from serving.engine.server import VllmServer

def tell(**what):
    print(json.dumps(what), flush=True)

async def main(card, model, folder):
    server = VllmServer(load_card(card), model, folder / "server.log")
    try:
        while not (folder / "stop").exists():
            await server.start()
            async with server.endpoint.client(60.0) as client:
                asked = {"model": server.card.name, "prompt": "Go", "max_tokens": 4}
                answer = await client.post("/v1/completions", json=asked)
            tell(tokens=answer.json()["usage"]["completion_tokens"])
            while server.alive and not (folder / "stop").exists():
                await asyncio.sleep(0.1)
            if not server.alive:
                tell(failure=server.failure())
    finally:
        await server.stop()
    tell(stopped=True)

asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
"""


class Job:
    """A job of two nodes with an owner of a server in it.

    Args:
        card: file of the model's card.
    """

    def __init__(self, folder: Path, environment: dict[str, str], card: Path, model: str) -> None:
        self.folder = folder
        self._environment = environment
        (folder / "owner.py").write_text(OWNER)
        owner = [sys.executable, str(folder / "owner.py"), str(card), model, str(folder)]
        self.id = self.slurm(
            "sbatch",
            *(
                "--parsable",
                "--nodes=2",
                "--ntasks-per-node=1",
                "--cpus-per-task=2",
                "--mem=6G",
                "--no-requeue",
            ),
            f"--output={folder}/log",
            f"--wrap=srun --nodes=1 --ntasks=1 --cpus-per-task=2 {' '.join(owner)}",
        ).strip()

    def slurm(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command, env=self._environment, cwd=CHECKOUT, capture_output=True, text=True, check=True
        )
        return done.stdout

    @property
    def told(self) -> list[dict[str, Any]]:
        """What the owner has told so far."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    def processes(self, name: str = "") -> list[psutil.Process]:
        """What runs for this job, on both nodes, by the beginning of its command line."""
        whose = ("SLURM_TMPDIR", self._environment["SLURM_TMPDIR"])
        found = []
        for each in psutil.process_iter():
            try:
                ours = whose in each.environ().items()
            except psutil.Error:
                continue
            if ours and words(each).startswith(name):
                found.append(each)
        return found

    def until(self, happened: Callable[[], Any], what: str) -> None:
        """Wait for something that this job is to do."""
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < deadline, f"{what}: {(self.folder / 'log').read_text()}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with cluster(tmp_path_factory.mktemp("slurm"), nodes=2) as environment:
        yield environment


@pytest.fixture
def job(tmp_path: Path, environment: dict[str, str]) -> Iterator[Job]:
    model = prepare(load_card("tiny-random"), print)
    content = yaml.safe_load((MODELS / "tiny-random.yaml").read_text())
    content |= {"nodes": 2, "path": model}
    content["server"]["flags"] |= {"tensor-parallel-size": 2, "distributed-executor-backend": "mp"}
    card = tmp_path / "card.yaml"
    card.write_text(yaml.safe_dump(content))
    scratch = mkdtemp(prefix="slurm-")  # short enough for sockets
    job = Job(tmp_path, environment | {"TMPDIR": scratch, "SLURM_TMPDIR": scratch}, card, model)
    yield job
    for owner in job.processes(OWNS):
        owner.kill()
    job.until(lambda: not job.processes(), "the end of all processes")
    shutil.rmtree(scratch)


def folders(processes: list[psutil.Process]) -> list[Path]:
    """Those that the guards among these processes look after."""
    return [Path(each.cmdline()[4]) for each in processes if "/guard.py " in words(each)]


def test_two_nodes_serve_one_model_and_start_again_when_a_part_of_it_ends(job: Job) -> None:
    job.until(lambda: job.told, "the first answer")
    (owner,), (follower,) = job.processes(OWNS), job.processes(FOLLOWS)
    assert follower.environ()["SLURMD_NODENAME"] != owner.environ()["SLURMD_NODENAME"]
    serving = tree(owner.pid)[1:] + tree(follower.pid)
    assert job.told == [{"tokens": 4}]

    next(each for each in serving if words(each).startswith("VLLM::Worker_TP1")).kill()
    job.until(lambda: len(job.told) == 3, "an answer after the death of a follower's worker")
    assert "the server of model 'tiny-random' ended with status" in job.told[1]["failure"]
    assert job.told[2] == {"tokens": 4}
    assert all_end(serving)

    serving = tree(owner.pid)[1:] + tree(job.processes(FOLLOWS)[0].pid)
    made = folders(serving)
    assert len(made) == 2
    (job.folder / "stop").touch()
    job.until(lambda: len(job.told) == 4, "the end")
    assert job.told[3] == {"stopped": True}
    assert all_end(serving)
    assert not any(folder.exists() for folder in made)


@pytest.mark.parametrize("victim", [OWNS, STARTS_FOLLOWERS])
def test_the_followers_end_when_what_has_started_them_is_killed(job: Job, victim: str) -> None:
    job.until(lambda: job.told, "the first answer")
    following = tree(job.processes(FOLLOWS)[0].pid)
    (folder,) = folders(following)
    for each in job.processes(victim):
        each.kill()
    assert all_end(following)
    assert not folder.exists()
