"""`speedrunner show`: print recorded episodes, sleeps and skill libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from envs import Primitive
from speedrunner.agents.texts import describe_failure, full_lines, sleep_lines
from speedrunner.cli.command import RunPath
from speedrunner.cli.output import say
from speedrunner.library.library import Library
from speedrunner.plain.console import align_columns, count_of
from speedrunner.runs.setup import find_policy
from speedrunner.runs.stored_setup import stored_env
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.process_notes import caveats
from speedrunner.store.records import EpisodeRow
from speedrunner.store.run_data import RunData, load

HEAD = ("episode", "ended by", "score", "LLM calls", "actions", "output tokens")
"""Columns of the list of episodes."""


def show(
    run: RunPath,
    episode: Annotated[
        str | None,
        typer.Argument(
            metavar="[EPISODE]",
            help="Its key: train/0007, test/0050/0012, sleep/0001 or library/0001. Short forms work: train/7,"
            " test/50/12; library is the newest. Default: a list of all episodes.",
        ),
    ] = None,
) -> None:
    """List a run's episodes, or print an episode, a sleep or a library.

    The list begins with the failed episodes, each with the reason in one line. An episode is printed turn by
    turn: messages, thoughts, calls and observations, tokens by class, the end and the score. A sleep is
    printed with everything that its agents read and wrote. Tools follow the system message. A library is
    printed with who may call each skill, the sleeps that wrote it, and the notes if the method keeps any.

    Examples:
      speedrunner show runs/demo
      speedrunner show runs/demo test/10/3
    """
    data = load(run)
    if episode is None:
        say(*_list_episodes(data))
    else:
        kind, _, number = episode.partition("/")
        if kind == "library":
            directory, version = find_policy(f"{run}:{number}" if number else str(run))
            stored, notes = load_library(directory, version)
            say(stored.annotated_source(notes))
            return
        elif kind == "sleep" and number.isdecimal():
            say(*sleep_lines(data.sleep(int(number)), data))
        else:
            say(*full_lines(data.trajectory(episode), data))
    say(*caveats([data]))


def _list_episodes(run: RunData) -> Iterator[str]:
    """Yield a line for each finished episode, the failed ones first, in the order in which they ended."""
    rows = sorted(run.episodes, key=lambda row: row.success is True)
    failed = [row for row in rows if row.success is not True]
    unscored = sum(row.termination.is_fault for row in failed)
    yield f"{run.path}: {count_of(len(rows), 'finished episode')}, {len(failed) - unscored} failed" + (
        f", {unscored} ended by an infrastructure error" if unscored else ""
    )
    if not rows:
        return
    played = map(run.find, failed)
    reasons = ["" if trajectory is None else describe_failure(trajectory) for trajectory in played]
    reasons += [""] * (len(rows) - len(failed))
    yield from align_columns([HEAD, *map(_cells, rows)], left=2, notes=reasons)
    yield f"One episode, turn by turn: speedrunner show {run.path} {rows[0].episode}"


def _cells(row: EpisodeRow) -> tuple[str, ...]:
    score = "-" if row.score is None else f"{row.score:.3f}"
    counts = row.llm_calls, row.actions, row.usage.completion
    return (row.episode, str(row.termination), score, *map(str, counts))


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
