"""`speedrunner export`: runs in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from speedrunner.cli.command import Trust
from speedrunner.cli.look_commands import load_library
from speedrunner.cli.output import say
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import count_of
from speedrunner.results.export.atif import write_trajectories
from speedrunner.results.export.dataset import write_dataset
from speedrunner.results.export.inspect_log import write_logs
from speedrunner.results.export.skill_package import check_name, write_package
from speedrunner.runs.setup import find_policy
from speedrunner.store.discovery import runs_below
from speedrunner.store.files import OUTPUT_MODE, whole_folder
from speedrunner.store.policies import InvalidPolicy

Format = Literal["dataset", "inspect", "atif", "skills"]


def export(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Runs, or folders with runs; RUN[:VERSION] for skills."),
    ],
    to: Annotated[
        Format,
        typer.Option(
            "--to",
            metavar="dataset|inspect|atif|skills",
            help="dataset: a Hugging Face datasets folder (parquet) with one row for each conversation."
            " inspect: one log of Inspect for each evaluation."
            " atif: one ATIF 1.8 trajectory for each conversation."
            " skills: a run's library as an agent skill (SKILL.md).",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="A new or empty folder to write.")],
    trust: Trust = None,
) -> None:
    """Write runs or a library in the formats of other tools.

    Runs may be unfinished. The folder appears once it is complete.
    For skills, its name becomes the name of the skill.

    Examples:
        speedrunner export runs/demo --to dataset --out demo-episodes
        speedrunner export runs/demo --to atif --out demo-atif
        speedrunner export runs/demo:4 --to skills --out babyai-skills
    """
    if to == "skills":
        _write_skills(runs, out, trust or [])
        return
    paths = runs_below(*runs)
    if not paths:
        raise InvalidConfig(f"no run found in {', '.join(map(str, runs))}")
    with whole_folder(out, OUTPUT_MODE) as folder:
        if to == "dataset":
            counts = write_dataset(paths, folder)
            parts = counts.items()
            what = ", ".join(f"{count_of(count, 'conversation')} in {split}" for split, count in parts)
        elif to == "inspect":
            what = count_of(len(write_logs(paths, folder)), "log")
        else:
            what = f"{write_trajectories(paths, folder)} trajectories"
    say(f"{what or 'nothing'} of {count_of(len(paths), 'run')} written to {out}")


def _write_skills(sources: list[Path], out: Path, trust: list[str]) -> None:
    """Write a version of a run's library as an agent skill."""
    if len(sources) != 1:
        raise InvalidConfig(f"--to skills writes one library, not {len(sources)}: name one RUN[:VERSION]")
    check_name(out)
    run, version = find_policy(str(sources[0]))
    if not run.policies.load(version).skills:
        raise InvalidPolicy(f"{run.path}: policy v{version:04d} has no skills to export")
    library, _ = load_library(run, version, trust)
    write_package(run, version, library, out)
    say(f"{count_of(len(library.public), 'public skill')} of {run.path}:{version} written to {out}")
