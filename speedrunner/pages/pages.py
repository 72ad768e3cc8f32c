"""The content of each page of the viewer, for its template."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speedrunner.config.names import condition_name
from speedrunner.config.schema import InvalidConfig
from speedrunner.pages.plots import draw_spark
from speedrunner.results.frames import frame_episodes
from speedrunner.results.means import average_tests
from speedrunner.results.writing import list_rows
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import RunData, load
from speedrunner.store.run_lock import owner_of

TURNS = 100
"""Turns of an episode on one page."""

CHARS = 50_000
"""Characters of one text on a page."""

SOON_S, LATER_S = 4, 30
"""Seconds after which a page that can grow reloads: while a process plays the run, and otherwise."""

Context = dict[str, Any]


class NotFound(Exception):
    """The page does not exist."""


def page_part(items: Sequence[Any], page: int, size: int) -> Context:
    """Return one page of a list for its template.

    Returns:
        `shown`: the page's items; `first`: the number of the first one, from 1; `count`: the number of all
        items; `page`, `pages`.

    Raises:
        NotFound: the list has fewer pages.
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


def heading(run: RunData, *, grows: bool = False) -> Context:
    """Return the heading of all pages of a run.

    Args:
        grows: whether the page has more content when the run has.
    """
    env = ""
    try:
        played = condition_name(run.settings)
        env = played.env
        named = f"{played.env}, {played.method}, {played.model}, seed {run.settings.run.seed}"
    except InvalidConfig as error:
        named = str(error)
    owner = owner_of(run.path / "lock")
    return {
        "name": run.path.name,
        "current": "",
        "env": env,
        "condition_name": named,
        "status": _status(run, owner),
        "growing": (SOON_S if owner else LATER_S) if grows else 0,
        "caveats": caveats(run.processes),
        "left_out": run.left_out,  # grows until the page is rendered
    }


def _status(run: RunData, owner: str | None) -> Context:
    """Return the text of a run's badge, its kind, and who plays it or why it is unknown."""
    if owner:
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


def _series(points: Sequence[Mapping[str, Any]], column: str) -> list[tuple[int, float]]:
    """Return the known values of a column by checkpoint."""
    return [(each["checkpoint"], each[column]) for each in points if each[column] is not None]


def runs_page(found: Mapping[str, Path]) -> Context:
    """Return the list of runs, by their names in addresses. A run that cannot be read shows its error."""
    shown: list[Context] = []
    top = os.path.commonpath([path.resolve().parent for path in found.values()]) if found else ""
    for slug, path in found.items():
        try:
            run = load(path, skip_broken=True)
            points = list_rows(average_tests(frame_episodes(run.rows)))
            shown.append(
                {
                    "slug": slug,
                    **heading(run, grows=True),
                    "path": os.path.relpath(path.resolve(), top),
                    "episodes": len(run.rows),
                    "last": points[-1] if points else None,
                    "scores": _series(points, "score"),
                    "outputs": _series(points, "output"),
                    "problem": "",
                }
            )
        except DAMAGED as error:
            shown.append(
                {"slug": slug, "path": os.path.relpath(path.resolve(), top), "problem": damage(path, error)}
            )
    _draw_sparks(shown)
    return {"runs": shown, "growing": min((each.get("growing", LATER_S) for each in shown), default=LATER_S)}


def _draw_sparks(runs: Sequence[Context]) -> None:
    """Replace values over training by sparklines, with one scale for the runs of an environment."""
    for name in ("scores", "outputs"):
        tops: dict[str, float] = {}
        for run in (run for run in runs if not run["problem"]):
            tops[run["env"]] = max(tops.get(run["env"], 0), *(value for _, value in run[name]), 0)
        for run in (run for run in runs if not run["problem"]):
            run[name] = draw_spark(run[name], tops[run["env"]])


def episodes_page(run: RunData) -> Context:
    """Return all episodes in order."""
    return {**heading(run, grows=True), "rows": sorted(run.rows, key=lambda row: row.episode)}


def turn_link(turn: int) -> str:
    """Return the address of a turn, from 1, next to the pages of its episode or sleep."""
    return f"{(turn - 1) // TURNS + 1}.html#turn-{turn}"


def cap_text(text: str) -> str:
    """Return a text cut to the maximum length on a page."""
    more = len(text) - CHARS
    return (
        text if more <= 0 else f"{text[:CHARS]}\n[{more:,} further characters: `speedrunner show` prints all]"
    )
