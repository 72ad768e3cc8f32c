"""The summary at the top of the page: what was run, and headline numbers of each condition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from speedrunner.markup.tiles import Form, Tile, make_tile, show_value
from speedrunner.report.panels import OUTPUT, SCORE, USD
from speedrunner.results.conditions import Condition, Spread

HEADLINES: tuple[tuple[str, str, Form], ...] = (
    ("Score", SCORE, "score"),
    ("Output tokens", OUTPUT, "tokens"),
    ("USD", USD, "usd"),
)


class ConditionSummary(msgspec.Struct, frozen=True):
    """The headline numbers of one condition.

    Attributes:
        env, method, model: its names.
        points: finished checkpoints, in training rollouts.
        last_score: mean over seeds at the last checkpoint.
        tiles: `HEADLINES`, and the share of prompt tokens that the engine had cached.
    """

    env: str
    method: str
    model: str
    seeds: int
    points: list[int]
    last_score: float
    tiles: list[Tile]

    @property
    def title(self) -> str:
        """Return its names and seeds."""
        seeds = f"{self.seeds} seed{'s' if self.seeds != 1 else ''}"
        return f"{self.method} on {self.env}, {self.model}, {seeds}"


class Summary(msgspec.Struct, frozen=True):
    """The numbers and names of all runs, and the headline numbers of their conditions.

    Attributes:
        counts: numbers and names by what they count.
        leading: one condition of each environment: SpeedRunner's if it was played, otherwise that with the
            highest last score.
        conditions: all with a finished checkpoint.
    """

    counts: dict[str, str]
    leading: list[ConditionSummary]
    conditions: list[ConditionSummary]


def summarize(conditions: Sequence[Condition]) -> Summary:
    """Return the summary of conditions."""
    found = [summary for each in conditions if (summary := _summarize_condition(each))]
    leading: dict[str, ConditionSummary] = {}
    for each in sorted(found, key=lambda each: (each.method == "speedrunner", each.last_score)):
        leading[each.env] = each
    runs = [run for each in conditions for run in each.runs]
    names = {
        word: list(dict.fromkeys(name))
        for word, name in zip(
            ("Environments", "Methods", "Models"), zip(*(each.names for each in conditions), strict=True),
            strict=False,
        )
    }  # fmt: skip
    counts = {
        "Runs": f"{len(runs):,}",
        "Conditions": f"{len(conditions):,}",
        "Episodes": f"{sum(len(run.episodes) for run in runs):,}",
        **{word: ", ".join(each) for word, each in names.items()},
        "Seeds": ", ".join(map(str, sorted({run.seed for run in runs}))),
    }
    if starts := [run.started for run in runs if run.started is not None]:
        counts["Started"] = " to ".join(dict.fromkeys(map(_date, (min(starts), max(starts)))))
    return Summary(counts, [leading[env] for env in sorted(leading)], found)


def _summarize_condition(condition: Condition) -> ConditionSummary | None:
    """Return the headlines of a condition; `None` without a finished checkpoint."""
    scores = condition.spread(SCORE)
    if not scores:
        return None
    tiles = []
    for label, measure, form in HEADLINES:
        found = condition.spread(measure)
        if form == "usd" and not any(each.mean for each in found.values()):
            found = {}  # no price is known
        tiles.append(
            make_tile(label, [(x, each.mean) for x, each in found.items()], form, _around(found, form))
        )
    cached, uncached = condition.spread("cached"), condition.spread("uncached")
    shares = [(x, cached[x].mean / total) for x in cached if (total := cached[x].mean + uncached[x].mean)]
    tiles.append(make_tile("Prompt cached", shares, "share"))
    env, method, model = condition.names
    last = scores[max(scores)].mean
    return ConditionSummary(env, method, model, len(condition.runs), condition.points, last, tiles)


def _around(found: dict[int, Spread], form: Form) -> str:
    """Return the deviation over seeds at the last checkpoint as text; empty for one seed."""
    last = found[max(found)] if found else None
    return "" if last is None or last.sd is None else f"± {show_value(last.sd, form)} over seeds"


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d}"
