"""`speedrunner check env`: check that an environment fulfils the contract of `envs.TextEnv`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from envs import Task
from envs.random_play import CALLS
from speedrunner.cli.command import class_name, class_options
from speedrunner.cli.output import end_report, say_finding
from speedrunner.config.compose import compose, env_settings
from speedrunner.config.findings import Finding, failure, ok, report
from speedrunner.config.named import choose_task
from speedrunner.config.schema import Config, TaskConfig
from speedrunner.store.files import write_shared
from speedrunner.store.json_records import format_record, read_record
from speedrunner.verification.certificate import (
    CALL_LIMIT_S,
    MOST_CALLS,
    PLAYS,
    Certificate,
    certified_tasks,
    certify,
    repeat_plays,
)
from speedrunner.workers.environment_check import PROCESSES, findings_in_workers
from speedrunner.workers.worker_messages import Check

OPTIONS = "Its options. task.name=... and task.index=... choose the task, and need no split."


def check(
    name: Annotated[str, class_name("babyai")],
    options: Annotated[list[str] | None, class_options(OPTIONS)] = None,
    calls: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_CALLS,
            help="Primitive calls of each play. The end is checked if the episode ends by then.",
        ),
    ] = CALLS,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Time limit of one call of the environment, in seconds.")
    ] = CALL_LIMIT_S,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the hashes of random plays here.", show_default=False),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare with a certificate of another machine.", show_default=False
        ),
    ] = None,
) -> None:
    """Play an environment at random and print each broken rule.

    No model is needed. Exit status 1: a rule is broken, or the environment differs from the certificate.

    Example: speedrunner check env scienceworld family=4
    """
    config = compose([f"env={name}", *env_settings(options or [])])
    known = read_record(compare, Certificate) if compare else None
    task = None if config.task == TaskConfig() else choose_task(config)

    async def check_in_workers() -> list[Finding]:
        job = Check(config.env.name, config.env.options, task, calls)
        found = []
        async for text in findings_in_workers(job, seconds):
            found.append(failure(name, text))
            say_finding(found[-1])
        return found

    if not (found := asyncio.run(check_in_workers())):
        plays = f"up to {calls} random primitive calls in each play"
        found = [ok(name, f"conforms: {plays}, the same in {PROCESSES} processes")]
        say_finding(found[0])
        if certificate:
            found.append(asyncio.run(_write_certificate(certificate, config, task, calls, seconds)))
            say_finding(found[-1])
        if known:
            found.append(asyncio.run(repeat_plays(known, str(compare), name, config.env.options, seconds)))
            say_finding(found[-1])
    end_report(report(name, found))


async def _write_certificate(
    path: Path, config: Config, task: Task | None, calls: int, seconds: float
) -> Finding:
    env, options = config.env.name, config.env.options
    tasks = [task] * PLAYS if task else certified_tasks(env, options)
    made = await certify(env, options, tasks, calls, seconds)
    if isinstance(made, Finding):
        return made
    write_shared(path, format_record(made))
    return ok("certificate", f"{len(tasks)} random plays are hashed in {path}; their digest is {made.digest}")
