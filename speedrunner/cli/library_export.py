"""`speedrunner library export`: a library as a package for other agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from speedrunner.cli.command import StoredLibrary, Trust
from speedrunner.cli.library_command import load_library
from speedrunner.cli.output import say
from speedrunner.export.skill_package import check_name, write_package
from speedrunner.results.library_label import label_library
from speedrunner.runs.stored_policy import find_policy
from speedrunner.store.files import read_content
from speedrunner.store.folders import check_new
from speedrunner.store.json_records import as_record
from speedrunner.store.policies import InvalidPolicy
from speedrunner.verification.certificate import Certificate

CERTIFICATE_BYTES = 8 * 2**20


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
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A determinism certificate of the environment, for the label.",
            show_default=False,
        ),
    ] = None,
    trust: Trust = None,
) -> None:
    """Write a library as an agent skill with a measured label.

    The label (label.json, and a table in SKILL.md) says what the run's test episodes show: success, tokens
    with and without the library, and the tokens saved with their interval. Without are the episodes that the
    same run played before it had skills. A run that differs from its checksums is refused.

    Example: speedrunner library export runs/demo:4 --to skills --out babyai-skills
    """
    check_name(out)
    check_new(out)
    run, version = find_policy(source)
    policy = run.policies.load(version)
    if not policy.skills:
        raise InvalidPolicy(f"{run.path}: policy v{version:04d} has no skills to export")
    library, _ = load_library(run, version, trust or [])
    proof, digest = None, None
    if certificate is not None:
        proof = read_content(certificate, CERTIFICATE_BYTES)
        known = as_record(proof, Certificate, certificate)
        known.require(run.settings.env.name, run.settings.env.options, str(certificate))
        digest = known.digest
    label = label_library(run, policy, licence, digest)
    write_package(policy, library, label, out, proof)
    say(f"{len(library.public)} public skills of {run.path}:{version} written to {out}")
    parts = {"with the library": label.with_library, "without it": label.without}
    if missing := [name for name, found in parts.items() if found is None]:
        say(f"not measured: test episodes {' and '.join(missing)}")
