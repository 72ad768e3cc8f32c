"""The summary at the top of the page: what was run, and headline numbers of each condition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from speedrunner.pages.panels import OUTPUT, SCORE, USD
from speedrunner.pages.tiles import Form, Tile, make_tile, show_value
from speedrunner.results.conditions import Condition
from speedrunner.results.means import Spread

HEADLINES: tuple[tuple[str, str, Form], ...] = (
    ("Score", SCORE, "score"),
    ("Output tokens", OUTPUT, "tokens"),
    ("USD per episode", USD, "usd"),
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
    found = _summarize_conditions(conditions)
    leading: dict[str, ConditionSummary] = {}
    for each in sorted(found, key=lambda each: (each.method == "speedrunner", each.last_score)):
        leading[each.env] = each
    runs = [run for each in conditions for run in each.runs.values()]
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


class _Headline(msgspec.Struct, frozen=True):
    """A measure of one condition: means over seeds by training rollouts, and a note on the last one."""

    label: str
    form: Form
    points: list[tuple[int, float]]
    note: str = ""


def _summarize_conditions(conditions: Sequence[Condition]) -> list[ConditionSummary]:
    """Return the headlines of conditions with a finished checkpoint. Sparklines of one environment share a
    scale."""
    found = [(each, _list_headlines(each)) for each in conditions if each.spread(SCORE)]
    tops: dict[tuple[str, str], float] = {}
    for condition, headlines in found:
        for each in headlines:
            key = condition.names[0], each.label
            tops[key] = max([tops.get(key, 0), *(value for _, value in each.points)])
    summaries = []
    for condition, headlines in found:
        env, method, model = condition.names
        tiles = [
            make_tile(each.label, each.points, each.form, each.note, tops[env, each.label])
            for each in headlines
        ]
        scores = condition.spread(SCORE)
        last = scores[max(scores)].mean
        seeds, points = len(condition.runs), condition.points
        summaries.append(ConditionSummary(env, method, model, seeds, points, last, tiles))
    return summaries


def _list_headlines(condition: Condition) -> list[_Headline]:
    found = []
    for label, measure, form in HEADLINES:
        spread = condition.spread(measure)
        if form == "usd" and not any(each.mean for each in spread.values()):
            spread = {}  # no price is known
        points = [(x, each.mean) for x, each in spread.items()]
        found.append(_Headline(label, form, points, _around(spread, form)))
    cached, uncached = condition.spread("cached"), condition.spread("uncached")
    shares = [(x, cached[x].mean / total) for x in cached if (total := cached[x].mean + uncached[x].mean)]
    return [*found, _Headline("Prompt cached", "share", shares)]


def _around(found: dict[int, Spread], form: Form) -> str:
    """Return the deviation over seeds at the last checkpoint as text; empty for one seed."""
    last = found[max(found)] if found else None
    return "" if last is None or last.sd is None else f"± {show_value(last.sd, form)} over seeds"


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d}"
