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
from speedrunner.config.schema import InvalidConfig
from speedrunner.config.slurm import run_slurm
from speedrunner.experiments.cluster.cluster_config import Cluster
from speedrunner.experiments.cluster.job_size import Servers, job_size, models_to_serve, servers_of
from speedrunner.experiments.cluster.jobs import JobPart, Submitted, job_status, note_jobs
from speedrunner.experiments.cluster.partition import Machines
from speedrunner.experiments.sweep_members import Member
from speedrunner.store.files import FOLDER_MODE, explain_errors, make_folder

TEMPLATE = CHECKOUT / "slurm" / "job.sbatch.jinja"
LOGS = "jobs"
"""The folder of jobs' logs, next to the runs."""


PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
"""Paths that sbatch reads literally without quotes."""

UNQUOTABLE = re.compile(r"[\\\x00-\x08\x0a-\x1f\x7f]")
"""Characters that quotes cannot protect. A backslash keeps sbatch from putting the job's number into a
path."""


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
    at_once: int,
    sweep: Sequence[str],
    root: Path,
    name: str,
) -> list[Array]:
    """Return the job arrays that play parts of a sweep.

    Args:
        dealt: all parts.
        wanted: numbers of the parts to play, from 1 on.
        at_once: episodes of a job at the same time.
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
    alike: dict[tuple[int, int], list[int]] = {}
    for number in wanted:
        servers = _servers(dealt[number - 1], cluster)
        alike.setdefault((servers.nodes, servers.gpus), []).append(number)
    job_name = "speedrunner-" + re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)
    found = []
    for (nodes, gpus), numbers in alike.items():
        parts = {number: dealt[number - 1] for number in numbers}
        size = job_size([*parts.values()], at_once)
        machines = Machines(gpus, cluster.cpus or size.cpus, cluster.memory_gb or size.memory_gb, nodes=nodes)
        runs = {number: [str(Path(each.path).resolve()) for each in part] for number, part in parts.items()}
        text = script(cluster, machines, numbers, len(dealt), sweep, root, job_name)
        found.append(Array(job_name, machines, runs, text))
    return found


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
        "cpus-per-task": machines.cpus,
        "mem": f"{machines.memory_gb}G",
        "gpus-per-node": machines.gpus or None,
        "time": cluster.minutes,
        "array": ",".join(map(str, numbers)),
    }
    options = [f"--{name}={value}" for name, value in asked_for.items() if value is not None]
    own = shlex.join([sys.executable, "-P", "-m", "speedrunner"])  # works from any directory
    program = f"{cluster.container} speedrunner" if cluster.container else own
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
        JobPart(f"{number}_{part}", str(logs.resolve() / f"{number}_{part}.log"), runs)
        for part, runs in array.parts.items()
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


def _servers(part: Sequence[Member], cluster: Cluster) -> Servers:
    """Return what the servers of a part need. Raises `InvalidConfig` if a job cannot have it."""
    for member in part:
        place, started = member.run.place, models_to_serve(member)
        gpus = sum(each.gpus_of_a_node for each in started)
        if gpus > cluster.gpus:
            raise InvalidConfig(
                f"{place}{gpus} GPUs on one node are needed for"
                f" {' and '.join(each.name for each in started)}, and the cluster's nodes have"
                f" {cluster.gpus} (cluster.gpus)"
            )
        if len(spread := [each.name for each in started if each.nodes > 1]) > 1:
            raise InvalidConfig(
                f"{place}{' and '.join(spread)} each need several nodes, but a job can have one such"
                " model: choose a smaller one for the actor or the inducer"
            )
    return servers_of(part)


def _output(root: Path) -> str:
    """Return the pattern of the logs' paths, quoted for sbatch in a script."""
    folder, pattern = str(root.resolve() / LOGS), "%A_%a.log"
    if PLAIN.fullmatch(folder):
        return f"{folder}/{pattern}"
    escaped = folder.replace('"', r"\"").replace("%", "%%")
    return f'"{escaped}/{pattern}"'
