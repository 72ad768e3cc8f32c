"""What all pages of a run share: their heading, links, and lists that are spread over pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from speedrunner.config.names import condition_name
from speedrunner.config.schema import InvalidConfig
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import RunData
from speedrunner.store.run_lock import owner_of

TURNS = 100
"""Turns of an episode on one page."""

CHARS = 50_000
"""Characters of one text on a page."""

Context = dict[str, Any]


class NotFound(Exception):
    """The page does not exist."""


def page_part(items: Sequence[Any], page: int, size: int) -> Context:
    """Return one page of a list for its template.

    Returns:
        `shown`: the page's items; `first`: the number of the first one, from 1; `count`: the number of all
        items; `page`, `pages`.

    Raises `NotFound`: the list has fewer pages.
    """
    pages = max(-(-len(items) // size), 1)
    if not 1 <= page <= pages:
        raise NotFound(f"it has {pages} pages")
    first = (page - 1) * size
    return {
        "shown": items[first : first + size],
        "first": first + 1,
        "count": len(items),
        "page": page,
        "pages": pages,
    }


def heading(run: RunData) -> Context:
    """Return the heading of all pages of a run."""
    try:
        played = condition_name(run.settings)
        named = f"{played.env}, {played.method}, {played.model}, seed {run.settings.run.seed}"
    except InvalidConfig as error:
        named = str(error)
    return {
        "name": run.path.name,
        "condition_name": named,
        "status": _status(run),
        "caveats": caveats([run]),
    }


def _status(run: RunData) -> Context:
    """Return the text of a run's badge, its kind, and who plays it or why it is unknown."""
    if owner := owner_of(run.path / "lock"):
        return {"kind": "plain", "text": "running", "note": f"played by {owner}"}
    try:
        tested = Counter(row.checkpoint for row in run.rows if row.phase == "test")
        trained = sum(row.phase == "train" for row in run.rows)
        plan, points = run.settings.run, run.checkpoints
        # The last evaluation needs all training. Without evaluations, the last sleep is the end.
        is_finished = all(tested[each] >= plan.test_episodes for each in points)
        if not points:
            is_finished = trained >= plan.rollouts and plan.sleeps in run.policies.versions()
    except DAMAGED as error:
        return {"kind": "bad", "text": "damaged", "note": damage(run.path, error)}
    if is_finished:
        return {"kind": "good", "text": "finished", "note": ""}
    if not run.rows:
        return {"kind": "warn", "text": "not started", "note": "no finished episode, no process"}
    return {"kind": "warn", "text": "stopped", "note": "unfinished, no process"}


def turn_link(turn: int) -> str:
    """Return the address of a turn, from 1, next to the pages of its episode or sleep."""
    return f"{(turn - 1) // TURNS + 1}.html#turn-{turn}"


def cap_text(text: str) -> str:
    """Return a text cut to the maximum length on a page."""
    more = len(text) - CHARS
    return (
        text if more <= 0 else f"{text[:CHARS]}\n[{more:,} further characters: `speedrunner show` prints all]"
    )
