"""Submits runs as Slurm jobs. Each job has a server and plays a part of a sweep."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import jinja2
import msgspec

from serving.model_configs import CHECKOUT
from speedrunner.cluster.cluster_config import Cluster
from speedrunner.cluster.jobs import JobPart, Submitted, job_status, note_jobs
from speedrunner.config.schema import InvalidConfig
from speedrunner.experiments.sweep import Member
from speedrunner.slurm import run_slurm
from speedrunner.store.files import FOLDER_MODE, explain_errors, make_folder

TEMPLATE = CHECKOUT / "slurm" / "job.sbatch.jinja"
LOGS = "jobs"
"""The folder of jobs' logs, next to the runs."""


PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
"""Paths that sbatch reads literally without quotes."""

UNQUOTABLE = re.compile(r"[\\\x00-\x08\x0a-\x1f\x7f]")
"""Characters that quotes cannot protect. A backslash keeps sbatch from putting the job's number into a
path."""


class Machines(msgspec.Struct, frozen=True):
    """The machines that a job needs: nodes, and GPUs on each."""

    nodes: int
    gpus: int


class Array(msgspec.Struct, frozen=True):
    """Jobs that need the same machines: their name, their parts by number, and their common script."""

    name: str
    machines: Machines
    parts: dict[int, list[str]]
    script: str


def arrays(
    dealt: Sequence[Sequence[Member]],
    wanted: Sequence[int],
    cluster: Cluster,
    sweep: Sequence[str],
    root: Path,
    name: str,
) -> list[Array]:
    """Return the job arrays that play parts of a sweep.

    Args:
        dealt: all parts.
        wanted: numbers of the parts to play, from 1 on.
        sweep: the words of the sweep's command after `speedrunner sweep`.
        root: the folder of the runs.
        name: name of the list of runs, which the jobs' name contains.

    Raises:
        InvalidConfig: the cluster lacks the machines that a model needs, or sbatch would misread the folder's
            name.
    """
    if UNQUOTABLE.search(str(root.resolve())):
        raise InvalidConfig(
            f"--dir {str(root)!r}: sbatch accepts no path with a backslash, a line break or another"
            " control character; choose another folder"
        )
    needs: dict[Machines, list[int]] = {}
    for number in wanted:
        needs.setdefault(_machines(dealt[number - 1], cluster), []).append(number)
    job_name = "speedrunner-" + re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)
    return [
        Array(
            job_name,
            machines,
            {number: [str(Path(each.path).resolve()) for each in dealt[number - 1]] for number in numbers},
            script(cluster, machines, numbers, len(dealt), sweep, root, job_name),
        )
        for machines, numbers in needs.items()
    ]


def script(
    cluster: Cluster,
    machines: Machines,
    numbers: Sequence[int],
    of: int,
    sweep: Sequence[str],
    root: Path,
    name: str,
) -> str:
    """Return the batch script of an array of jobs, one for each number of a part.

    Raises:
        InvalidConfig: a name in it is not UTF-8.
    """
    asked_for = {
        "job-name": name,
        "partition": cluster.partition,
        "account": cluster.account,
        "nodes": machines.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": cluster.cpus,
        "mem": f"{cluster.memory_gb}G",
        "gpus-per-node": machines.gpus or None,
        "time": cluster.minutes,
        "array": ",".join(map(str, numbers)),
    }
    options = [f"--{name}={value}" for name, value in asked_for.items() if value is not None]
    program = f"{cluster.container} speedrunner" if cluster.container else shlex.join(_program())
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        options=[*options, *cluster.options],
        log=_output(root),
        setup=cluster.setup.strip(),
        folder=shlex.quote(str(Path.cwd())),
        scratch=f'"{cluster.scratch}"' if cluster.scratch else "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}",
        nodes=machines.nodes,
        command=f'{program} {shlex.join(["sweep", *sweep])} --part="$SLURM_ARRAY_TASK_ID/{of}"',
    )
    try:
        text.encode()
    except UnicodeEncodeError:
        names = [ascii(each) for each in (str(Path.cwd()), *sweep) if not each.isascii()]
        raise InvalidConfig(f"a name must be UTF-8 for Slurm: {' or '.join(names)}") from None
    return text


def submit(array: Array, root: Path) -> list[JobPart]:
    """Submit an array to Slurm, and record its jobs next to their runs.

    Raises:
        SlurmRefused: Slurm does not accept it.
        StorageError: the folder cannot be written.
    """
    logs = root / LOGS
    with explain_errors(root, "made"):
        root.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    make_folder(logs)
    number = run_slurm("sbatch", "--parsable", text=array.script).strip().partition(";")[0]
    jobs = [
        JobPart(f"{number}_{part}", _log(root, number, str(part)), runs) for part, runs in array.parts.items()
    ]
    note_jobs(root, Submitted(jobs))
    return jobs


def require_free(runs: Sequence[str], root: Path) -> None:
    """Raise `InvalidConfig` if a job in the queue will play one of these directories."""
    wanted = {str(Path(each).resolve()) for each in runs}
    for job in job_status(root) if root.exists() else []:
        if job.in_queue and (both := wanted.intersection(job.runs)):
            raise InvalidConfig(
                f"job {job.job}, which is {job.state}, plays {Path(min(both)).name}: wait for it, or"
                f" cancel it with `scancel {job.job}`"
            )


def _machines(part: Sequence[Member], cluster: Cluster) -> Machines:
    """Return the machines for the servers of a part, which follow one another."""
    needs = [_server_machines(each, cluster) for each in part]
    return Machines(max(each.nodes for each in needs), max(each.gpus for each in needs))


def _server_machines(member: Member, cluster: Cluster) -> Machines:
    """Return the machines for the server of a run."""
    run, setup = member.run, member.setup
    started = {
        model_config.name: model_config
        for model_config, options in setup.services
        if model_config.base_url is None and options.url is None
    }
    gpus = sum(model_config.gpus_of_a_node for model_config in started.values())
    if gpus > cluster.gpus:
        raise InvalidConfig(
            f"{run.place}{gpus} GPUs on one node are needed for {' and '.join(started)}, and the"
            f" cluster's nodes have {cluster.gpus} (cluster.gpus)"
        )
    if len(spread := [name for name, model_config in started.items() if model_config.nodes > 1]) > 1:
        raise InvalidConfig(
            f"{run.place}{' and '.join(spread)} each need several nodes, but a job can have one such"
            " model: choose a smaller one for the actor or the inducer"
        )
    return Machines(max((model_config.nodes for model_config in started.values()), default=1), gpus)


def _program() -> list[str]:
    """Return this installation's command; it works from any directory."""
    return [sys.executable, "-P", "-m", "speedrunner"]


def _output(root: Path) -> str:
    """Return the pattern of the logs' paths, quoted for sbatch in a script."""
    folder, pattern = str(root.resolve() / LOGS), "%A_%a.log"
    if PLAIN.fullmatch(folder):
        return f"{folder}/{pattern}"
    escaped = folder.replace('"', r"\"").replace("%", "%%")
    return f'"{escaped}/{pattern}"'


def _log(root: Path, job: str, task: str) -> str:
    return str(root.resolve() / LOGS / f"{job}_{task}.log")
