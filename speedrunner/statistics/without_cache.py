"""What the prefix cache changes: policies that were evaluated again on a server without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speedrunner.statistics.groups import Group, mean_sd, spread
from speedrunner.statistics.summary import Checkpoint
from speedrunner.statistics.writing import Cell, Table

MEASURES = ("score", "uncached", "cached", "output", "actor_usd")


def cache_table(groups: Sequence[Group]) -> Table:
    """A row for each setting of which a run's last policy was evaluated without prefix cache as well."""
    settings = {group.setting: group for group in groups}
    rows = [
        row
        for group in groups
        if group.runs[0].config.model.prefix_caching is False
        for other in settings.values()
        if _begins_with(group, other)
        for row in _rows(other, group)
    ]
    columns = ("env", "method", "model", "measure", "seeds", "with_cache", "without_cache", "ratio")
    text = (
        "The same policies on a server with prefix cache and without: means over test episodes, then over the"
        " seeds that have both; USD of the test episodes alone. Ratio: with by without."
    )
    return Table("cache", text, columns, rows)


def _begins_with(group: Group, other: Group) -> bool:
    """Whether a group evaluates the policies of the other one."""
    names = {run.path.rpartition("/")[2] for run in other.runs}
    sources = {(run.config.run.start_from or "").rpartition("/")[2] for run in group.runs}
    return bool(names & sources)


def _rows(cached: Group, uncached: Group) -> Iterator[tuple[Cell, ...]]:
    seeds = {run.seed: run.last for run in cached.runs}
    pairs = [(seeds.get(run.seed), run.last) for run in uncached.runs]
    whole: list[tuple[Checkpoint, Checkpoint]] = [(one, other) for one, other in pairs if one and other]
    setting = cached.setting
    for measure in MEASURES:
        with_, without = (mean_sd(spread(pair[side].mean(measure) for pair in whole))[0] for side in (0, 1))
        ratio = with_ / without if with_ is not None and without else None
        name = "cost_usd" if measure == "actor_usd" else measure
        yield (setting.env, setting.method, setting.model, name, len(whole), with_, without, ratio)
