"""Submits runs as Slurm jobs. Each job has a server and plays a part of a sweep."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import jinja2
import msgspec

from serving.model_configs import CHECKOUT
from speedrunner.cluster.cluster_config import Cluster
from speedrunner.cluster.jobs import JobPart, Submitted, note_jobs
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.slurm import run_slurm
from speedrunner.runs.planned_runs import PlannedRun
from speedrunner.store.files import FOLDER_MODE, explain_errors, make_folder

TEMPLATE = CHECKOUT / "slurm" / "job.sbatch.jinja"

LOGS = "jobs"
"""The folder of jobs' logs, next to the runs."""

PASSED = re.compile(
    r"SLURM_(CLUSTERS|CONF|CONF_SERVER|JWT)|SBATCH_(ACCOUNT|CLUSTERS|CONSTRAINT|PARTITION|QOS|RESERVATION)"
    r"|(?!(SLURM|SBATCH|SRUN)_).*",
    re.DOTALL,
)
"""Variables of the shell that reach a job. Slurm's own would change its size or its step: an interactive job
exports its memory, tasks and binding, for example. The user's defaults for place and account stay, except for
options that the script sets: Slurm would prefer the variable."""

SAME_REQUEST = {
    "mem": r"mem|mem-per-cpu|mem-per-gpu",
    "gpus-per-node": r"gpus|gpus-per-node|gpus-per-task|gpus-per-socket|gres=gpu",
    "time": r"time",
}
"""Options of sbatch that replace one of this program's."""

PLAIN = re.compile(r"[\w@+=:,./ -]+")
"""Paths that sbatch and the script's quotes take literally."""


class Array(msgspec.Struct, frozen=True):
    """Jobs that need the same machines.

    Attributes:
        name: the jobs' name.
        gpus: GPUs of each job.
        parts: the directories of each part's runs, by the part's number.
        script: their common script.
    """

    name: str
    gpus: int
    parts: dict[int, list[str]]
    script: str


def arrays(
    dealt: Sequence[Sequence[PlannedRun]],
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
        InvalidConfig: the cluster lacks the machines that a model needs, or Slurm would misread the folder's
            name.
    """
    if not PLAIN.fullmatch(str(root.resolve())):
        raise InvalidConfig(
            f"--dir {str(root)!r}: Slurm needs a path of letters, digits, blanks and @ + = : , . / - _;"
            " choose another folder"
        )
    alike: dict[int, list[int]] = {}
    for number in wanted:
        alike.setdefault(_needed_gpus(dealt[number - 1], cluster), []).append(number)
    job_name = "speedrunner-" + re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)
    job_arrays = []
    for gpus, numbers in alike.items():
        runs = {number: [str(Path(run.path).resolve()) for run in dealt[number - 1]] for number in numbers}
        asked_for = {
            "job-name": job_name,
            "partition": cluster.partition,
            "account": cluster.account,
            "nodes": 1,
            "ntasks-per-node": 1,
            "cpus-per-task": cluster.cpus,
            "mem": f"{cluster.memory_gb}G" if cluster.memory_gb else None,
            "gpus-per-node": gpus or None,
            "time": cluster.minutes,
            "array": ",".join(map(str, numbers)),
        }
        options = [
            f"--{name}={value}"
            for name, value in asked_for.items()
            if value is not None and not _is_replaced(name, cluster.options)
        ]
        text = script(cluster, options, len(dealt), sweep, root)
        job_arrays.append(Array(job_name, gpus, runs, text))
    return job_arrays


def script(cluster: Cluster, options: Sequence[str], of: int, sweep: Sequence[str], root: Path) -> str:
    """Return the batch script of an array of jobs, each of which plays one of `of` parts."""
    own = shlex.join([sys.executable, "-P", "-m", "speedrunner.cli"])  # works from any directory
    program = f"{cluster.container} speedrunner" if cluster.container else own
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        options=[*options, *cluster.options],
        log=f'"{root.resolve() / LOGS}/%A_%a.log"',
        setup=cluster.setup.strip(),
        folder=shlex.quote(str(Path.cwd())),
        scratch=f'"{cluster.scratch}"' if cluster.scratch else "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}",
        command=f'{program} {shlex.join(["sweep", *sweep])} --part="$SLURM_ARRAY_TASK_ID/{of}"',
    )


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
    options = re.findall(r"^#SBATCH --([\w-]+)", array.script, re.MULTILINE)
    is_set = re.compile(rf"(SLURM|SBATCH)_({'|'.join(options)})", re.IGNORECASE)
    environment = {
        name: value
        for name, value in os.environ.items()
        if PASSED.fullmatch(name) and not is_set.fullmatch(name)
    }
    submitted = run_slurm("sbatch", "--parsable", text=array.script, environment=environment)
    number = submitted.strip().partition(";")[0]
    jobs = [
        JobPart(f"{number}_{part}", str(logs.resolve() / f"{number}_{part}.log"), runs)
        for part, runs in array.parts.items()
    ]
    note_jobs(root, Submitted(jobs))
    return jobs


def _is_replaced(name: str, options: Sequence[str]) -> bool:
    """Return whether the site's own options of sbatch request the same as the option `name`."""
    same = re.compile(rf"--({SAME_REQUEST.get(name, name)})([=:]|$)")
    return any(same.match(option) for option in options)


def _needed_gpus(part: Sequence[PlannedRun], cluster: Cluster) -> int:
    """Return the GPUs that the servers of a part need. Runs with different servers follow one another.
    Raises `InvalidConfig` if a job cannot have it."""
    for run in part:
        if run.setup.needed_gpus > cluster.gpus:
            raise InvalidConfig(
                f"{run.place}{run.setup.needed_gpus} GPUs on one node are needed for"
                f" {run.setup.model_config.name}, and the cluster's nodes"
                f" have {cluster.gpus} (cluster.gpus)"
            )
    return max((run.setup.needed_gpus for run in part), default=0)
