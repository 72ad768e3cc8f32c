"""`speedrunner library`: stored skill libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from envs import Primitive
from speedrunner.cli.command import RunPath
from speedrunner.cli.output import say
from speedrunner.library.library import Library
from speedrunner.runs.setup import find_policy
from speedrunner.runs.stored_setup import stored_env
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.run_data import RunData


def library(
    run: RunPath,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="Default: the newest.", show_default=False)
    ] = None,
) -> None:
    """Print the source of a library and who may call each skill.

    Each skill is printed with the sleeps that wrote it. Notes follow if the method keeps any. The tables
    `libraries` and `skills` of a report have sizes, complexity and calls.

    Example: speedrunner library runs/demo 2
    """
    directory, found = find_policy(str(run) if version is None else f"{run}:{version}")
    library, notes = load_library(directory, found)
    say(library.annotated_source(notes))


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
