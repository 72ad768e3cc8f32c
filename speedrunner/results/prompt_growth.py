"""How an actor's prompt grows from call to call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speedrunner.results.ledger import ACTOR
from speedrunner.store.labels import Labels
from speedrunner.store.run_data import RunData

if TYPE_CHECKING:
    import pandas

GROWTH = ("first_prompt", "growth")
"""Tokens of an episode's first prompt, and by how many tokens each further call's prompt is longer."""


def frame_prompts(run: RunData) -> pandas.DataFrame:
    """Return `GROWTH` of each episode in which the actor sent at least two requests, by the episode's key.

    Requests of wasted attempts, of other roles and of trial episodes in sleeps are left out.
    """
    import pandas

    episodes = {row.episode for row in run.episodes}
    prompts: dict[str, list[tuple[float, int]]] = {}
    for row in run.requests:
        labels = Labels.of(row.labels)
        if row.usage is None or row.wasted or labels.role != ACTOR or labels.episode not in episodes:
            continue
        prompts.setdefault(labels.episode, []).append((row.time, row.usage.prompt))
    found = {}
    for episode, own in prompts.items():
        sizes = [tokens for _, tokens in sorted(own)]
        if len(sizes) > 1:
            found[episode] = (sizes[0], (sizes[-1] - sizes[0]) / (len(sizes) - 1))
    return pandas.DataFrame.from_dict(found, orient="index", columns=[*GROWTH]).astype(float)
