"""A run over two nodes of a real Slurm, on vLLM's CPU build: an interruption, and deaths of its parts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from serving.model_configs import MODELS, load_model_config
from serving.weights import prepare
from tests.processes import all_end, tree, words
from tests.slurm.cluster import cluster, missing
from tests.slurm.test_jobs_on_slurm import Slurm, check, lines

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

ROLLOUTS = 6
EPISODES = ROLLOUTS + 2 * 1
BATCH = "trajectories/batch_0000.jsonl"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with cluster(tmp_path_factory.mktemp("slurm"), nodes=2) as environment:
        yield environment


@pytest.fixture
def slurm(tmp_path: Path, environment: dict[str, str]) -> Iterator[Slurm]:
    slurm = Slurm(tmp_path, environment)
    slurm.environment["SLURM_TMPDIR"] = str(slurm.scratch)
    yield slurm
    slurm.end()
    left = [file for file in slurm.scratch.rglob("*") if file.is_socket() or file.match("job-*")]
    left += slurm.scratch.glob("speedrunner-????????")
    shutil.rmtree(slurm.scratch)
    assert left == []


def submitted(slurm: Slurm) -> str:
    """A job of two nodes, with a short run of a model that is spread over them."""
    content = yaml.safe_load((MODELS / "tiny-random.yaml").read_text())
    content |= {"nodes": 2, "path": prepare(load_model_config("tiny-random"), print)}
    content["server"]["flags"] |= {"tensor-parallel-size": 2, "distributed-executor-backend": "mp"}
    content["server"]["env"]["TORCHDYNAMO_DISABLE"] = 1  # g++ would compile how a part finds its tokens
    model_config = slurm.runs.parent / "model.yaml"
    model_config.write_text(yaml.safe_dump(content))
    lengths = (f"run.rollouts={ROLLOUTS}", f"run.sleep_every={ROLLOUTS}", f"run.eval_every={ROLLOUTS}")
    short = ("max_calls=3", "string_tokens=24")
    roles = [f"model.{role}.{limit}" for role in ("actor", "inducer") for limit in short]
    (job,) = slurm.submit(1, f"model={model_config}", *lengths, "run.test_episodes=1", *roles)
    return job


def played(slurm: Slurm) -> psutil.Process:
    """The run on the head node."""
    (found,) = [each for each in of_steps(slurm) if "--worker-node" not in words(each)]
    return found


def served(slurm: Slurm) -> psutil.Process:
    """What serves the model's part on the worker node."""
    (found,) = [each for each in of_steps(slurm) if "--worker-node" in words(each)]
    return found


def of_steps(slurm: Slurm) -> list[psutil.Process]:
    return [each for each in slurm.workers() if each.name() != "srun" and " sweep " in words(each)]


def in_wake(slurm: Slurm) -> bool:
    return bool(slurm.directories) and lines(slurm.run / BATCH) > 0


def test_after_the_death_of_a_part_the_next_job_plays_on_and_drains_and_resumes(slurm: Slurm) -> None:
    job = submitted(slurm)
    slurm.until(lambda: in_wake(slurm), "wake")
    part = tree(served(slurm).pid)
    next(each for each in part if words(each).startswith("VLLM::Worker_TP1")).kill()
    assert all_end(part)
    slurm.until(lambda: slurm.job(job)["JobState"] == "FAILED", "the job's end")
    # Whoever sees it first: the script, or the server, whose next step fails.
    assert re.search(
        "a part of the model on another node has ended|the engine over 2 nodes died", slurm.log(job)
    )
    slurm.until(lambda: not slurm.workers(), "the end of all processes")

    recorded = lines(slurm.run / BATCH)
    again = submitted(slurm)
    slurm.until(lambda: lines(slurm.run / BATCH) > recorded, "another episode")
    nodes = {each.environ()["SLURMD_NODENAME"] for each in (played(slurm), served(slurm))}
    assert len(nodes) == 2
    slurm.restart(again, "scancel", "--signal=TERM", again)
    assert "stopped by SIGTERM; finished work is recorded" in slurm.log(again)
    slurm.wait(again)
    assert "died" not in slurm.log(again)
    check(slurm, slurm.run, EPISODES, sleeps=1)
