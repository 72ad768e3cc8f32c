"""`speedrunner library export`: a library as a package for other agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from speedrunner.cli.command import StoredLibrary, Trust
from speedrunner.cli.library_command import load_library
from speedrunner.cli.output import say
from speedrunner.export.skill_package import check_name, write_package
from speedrunner.runs.stored_policy import find_policy
from speedrunner.store.folders import check_new
from speedrunner.store.policies import InvalidPolicy


def export(
    source: StoredLibrary,
    to: Annotated[
        Literal["skills"],
        typer.Option("--to", metavar="skills", help="skills: an agent skill (SKILL.md).", show_default=False),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="A new or empty folder. Its name becomes the name of the skill.",
            show_default=False,
        ),
    ],
    licence: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Terms of the skills' text. Default: those of the model that wrote it.",
            show_default=False,
        ),
    ] = None,
    trust: Trust = None,
) -> None:
    """Write a library as an agent skill (SKILL.md).

    Example: speedrunner library export runs/demo:4 --to skills --out babyai-skills
    """
    check_name(out)
    check_new(out)
    run, version = find_policy(source)
    policy = run.policies.load(version)
    if not policy.skills:
        raise InvalidPolicy(f"{run.path}: policy v{version:04d} has no skills to export")
    library, _ = load_library(run, version, trust or [])
    write_package(run, version, library, out, licence)
    say(f"{len(library.public)} public skills of {run.path}:{version} written to {out}")
