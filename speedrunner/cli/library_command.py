"""`speedrunner library show | stats`: stored skill libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from envs import Primitive
from speedrunner.cli.command import AsJson, RunPath
from speedrunner.cli.output import say, say_json, terminal_width
from speedrunner.config.console import align_columns, short_number
from speedrunner.library.library import Library
from speedrunner.library.text import source_text
from speedrunner.results.libraries import library_statistics
from speedrunner.results.skill_table import SkillRow, list_skills, skill_history
from speedrunner.runs.stored_policy import find_policy
from speedrunner.runs.stored_setup import stored_env
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.run_data import RunData, load

Version = Annotated[
    int | None, typer.Argument(metavar="[VERSION]", help="Default: the newest.", show_default=False)
]


SKILL_COLUMNS = [
    *("skill", "calls by\nthe actor", "by other\ncode", "failed", "score\nwith it", "actions"),
    *("LLM calls\nsaved", "last\nedit"),
]


def show(run: RunPath, version: Version = None) -> None:
    """Print the source of a library and who may call each skill.

    Each skill is printed with the sleeps that wrote it. Notes follow if the method keeps any.

    Example: speedrunner library show runs/demo 2
    """
    directory, found = find_policy(str(run) if version is None else f"{run}:{version}")
    say(source_text(*load_library(directory, found)))


def stats(
    source: Annotated[str, typer.Argument(metavar="RUN[:VERSION]", help="A version, by default the newest.")],
    as_json: AsJson = False,
) -> None:
    """Print a library's size, complexity and calls of its skills.

    These are the statistics of the paper's Appendix H, and the share of functions about combat. A table of
    its skills follows: calls in all finished episodes, failed ones, mean score of the episodes in which the
    actor called the skill, primitive actions, LLM calls that these saved, and the sleep of its last edit.

    Examples:
      speedrunner library stats runs/demo:2
      speedrunner library stats runs/demo --json
    """
    directory, version = find_policy(source)
    library, _ = load_library(directory, version)
    run = load(directory.path)
    skills = [each for each in list_skills(skill_history(run)) if each.skill in library.by_name]
    found = library_statistics(library.definitions)
    if as_json:
        say_json(msgspec.structs.asdict(found) | {"skills": skills})
        return
    for name, value in msgspec.structs.asdict(found).items():
        say(f"{name:11} {'-' if value is None else f'{value:.4g}'}")
    if skills:
        say("", *align_columns([SKILL_COLUMNS, *map(_skill_cells, skills)], terminal_width()))


def _skill_cells(row: SkillRow) -> list[str]:
    """Return a row of the table of skills, with the columns `SKILL_COLUMNS`."""
    counts = map(str, (row.calls, row.inner_calls, row.errors))
    saved = map(str, (row.actions, row.steps_saved))
    numbers = short_number(row.score), *saved, str(row.changed)
    return [row.skill if row.public else f"{row.skill} (private)", *counts, *numbers]


def load_library(directory: RunData, version: int, trust: Sequence[str] | None = None) -> tuple[Library, str]:
    """Return the library and the notes of a stored version. Raises `InvalidPolicy`.

    Args:
        trust: checks the library again, with the primitives of the run's environment; names of foreign
            classes and model configs that it may use. `None` trusts the stored library.
    """
    policy = directory.policies.load(version)
    primitives: tuple[Primitive, ...] = ()
    if trust is not None:
        env = stored_env(directory, trust)
        env.close()
        primitives = env.primitives
    try:
        return Library(primitives).of(policy, trusted=trust is None), policy.notes
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{directory.path}: {error}") from error
