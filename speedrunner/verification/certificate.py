"""Determinism certificates: hashes of an environment's seeded random plays, which machines can compare."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from envs import InvalidOption, Task
from envs.class_registry import parameters
from envs.env_registry import REGISTRY
from serving.model_configs import CHECKOUT
from serving.usage import Integer
from speedrunner.config.findings import Finding, failure, ok
from speedrunner.config.named import split
from speedrunner.runs.machine import installed
from speedrunner.store.json_records import read_record
from speedrunner.workers.environment_check import PROCESSES, hashes_in_workers
from speedrunner.workers.worker_messages import HashPlays

BUNDLED = CHECKOUT / "envs" / "certificates"
"""The certificates of the bundled environments."""

PLAYS = 10
"""Plays of a certificate: half of them of the first training tasks, half of the first held-out tasks."""

MOST_PLAYS, MOST_CALLS = 1_000, 100_000
"""Maximum plays of a certificate, and primitive calls of each."""

CALL_LIMIT_S = 180.0
"""Seconds that one call of an environment may take by default."""

FORMAT = 1


class PlayHash(msgspec.Struct, frozen=True):
    """One random play. Its place in the certificate, from 0, is the seed of its random numbers.

    Attributes:
        hash: SHA-256 of all texts, outcomes, snapshots and ends of the play.
    """

    task: Task
    hash: str


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """The hashes of an environment's random plays, and where they were made.

    Attributes:
        env: name of the environment.
        options: its options that can change a play: all of its constructor's, without `local_options`.
        calls: primitive calls of each play, unless the episode ends earlier.
        plays: the plays in the order of their seeds.
        processes: number of processes that gave the same hashes.
        machine: operating system, processor architecture and C library.
        versions: of Python, SpeedRunner and the packages that determine the worlds (`TextEnv.packages`).
    """

    env: str
    options: dict[str, Any]
    calls: Annotated[int, msgspec.Meta(ge=1, le=MOST_CALLS)]
    plays: Annotated[list[PlayHash], msgspec.Meta(min_length=1, max_length=MOST_PLAYS)]
    processes: Integer
    machine: str
    versions: dict[str, str]
    format: Integer = FORMAT

    @property
    def digest(self) -> str:
        """The first 12 digits of a SHA-256 of environment, options and plays: machines on which the
        environment is the same have the same digest."""
        content = [self.env, sorted(self.options.items()), self.calls, self.plays]
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:12]

    def tasks(self) -> list[Task]:
        """Return the tasks in the order of the seeds."""
        return [each.task for each in self.plays]

    def require(self, env: str, options: Mapping[str, Any], where: str) -> None:
        """Check that it is about an environment; `where` is its file.

        Raises:
            InvalidOption: it is about another environment, or other options.
            EnvironmentFault: there is no such environment.
        """
        here = playing_options(env, options)
        if (self.env, self.options) != (env, here):
            raise InvalidOption(
                f"{where} is the certificate of {_describe(self.env, self.options)}, not of"
                f" {_describe(env, here)}"
            )


def playing_options(env: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an environment's constructor with their values, without those of this machine.

    Raises:
        EnvironmentFault: there is no such environment.
    """
    kind = REGISTRY.find(env)
    return {
        name: options.get(name, each.default)
        for name, each in parameters(kind).items()
        if name not in kind.local_options
    }


def certified_tasks(env: str, options: Mapping[str, Any]) -> list[Task]:
    """Return the tasks that a new certificate plays. Raises `EnvironmentFault` if there is no split."""
    found = split(env, options)
    return [*found.train[: PLAYS // 2], *found.test[: PLAYS // 2]]


async def certify(
    env: str, options: Mapping[str, Any], tasks: Sequence[Task], calls: int, limit_s: float
) -> Certificate | Finding:
    """Play an environment at random in several processes.

    Args:
        tasks: the task of each play.
        calls: primitive calls of each play.
        limit_s: seconds that one call of the environment may take.

    Returns:
        The certificate; or a failed finding if the environment breaks, or plays differ between processes.

    Raises:
        EnvironmentFault: there is no such environment.
        WorkerFault: it does not start.
    """
    job = HashPlays(env, dict(options), list(tasks), calls)
    found = await hashes_in_workers(job, limit_s)
    if isinstance(found, str):
        return failure("certificate", found)
    return Certificate(
        env=env,
        options=playing_options(env, options),
        calls=calls,
        plays=[PlayHash(*each) for each in zip(tasks, found, strict=True)],
        processes=PROCESSES,
        machine=" ".join((platform.system(), platform.machine(), *platform.libc_ver())).strip(),
        versions=_versions(env),
    )


async def repeat_plays(
    known: Certificate, where: str, env: str, options: Mapping[str, Any], limit_s: float
) -> Finding:
    """Repeat a certificate's plays here and compare their hashes.

    Args:
        where: the certificate's file, for the finding.
        env, options: the environment to compare with it.

    Raises:
        InvalidOption: the certificate is about another environment, or other options.
        EnvironmentFault, WorkerFault: as `certify`.
    """
    known.require(env, options, where)
    here = await certify(env, options, known.tasks(), known.calls, limit_s)
    if isinstance(here, Finding):
        return here
    changed = [
        f"{name} {here.versions.get(name, 'not installed')} here"
        for name in {**here.versions, **known.versions}
        if here.versions.get(name) != known.versions.get(name)
    ]
    for seed, (one, other) in enumerate(zip(here.plays, known.plays, strict=True)):
        if one.hash != other.hash:
            text = (
                f"seed {seed} ({one.task.name}, {one.task.index}) has the hash {one.hash} here, and"
                f" {other.hash} in {where} ({_made(known)})"
            )
            return Finding("certificate", "failed", text, details=changed, found=len(changed))
    same = f"{len(known.plays)} random plays have the hashes of {where} ({known.digest}; {_made(known)})"
    return ok("certificate", same)


def find_bundled(
    env: str, options: Mapping[str, Any], tasks: Iterable[Task]
) -> tuple[Path, Certificate] | None:
    """Return the bundled certificate that applies to an environment, with its file; `None` without one.

    Args:
        tasks: what is played; a certificate applies if it plays a task with one of these names.

    Raises:
        EnvironmentFault: there is no such environment.
        StorageError: a certificate cannot be read.
    """
    subject = env, playing_options(env, options)
    names = {each.name for each in tasks}
    for path in sorted(BUNDLED.glob("*.json")):
        found = read_record(path, Certificate)
        played = {each.name for each in found.tasks()}
        if (found.env, found.options) == subject and played & names:
            return path, found
    return None


def _versions(env: str) -> dict[str, str]:
    packages = installed(["speedrunner", *REGISTRY.find(env).packages])
    return {"python": platform.python_version(), **packages}


def _made(certificate: Certificate) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in certificate.versions.items())
    return f"made on {certificate.machine} with {packages}"


def _describe(env: str, options: Mapping[str, Any]) -> str:
    return " ".join([env, *(f"{name}={value}" for name, value in options.items())])
