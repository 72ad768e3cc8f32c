"""A run's episodes, sleeps and requests as data frames: the rows behind every mean.

Unknown values are missing. `uncached`, `cached` and `output` are tokens, and `reasoning` is a part of
`output`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from serving.usage import Usage
from speedrunner.results.ledger import Classes, RunCosts, Spend
from speedrunner.results.pricing import PriceBook
from speedrunner.store.records import EpisodeRow, Labels
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import sleep_key

if TYPE_CHECKING:
    import pandas

COSTS = ("llm_calls", "uncached", "cached", "output", "reasoning", "usd")
"""Values that are missing for an episode without a request."""

EPISODE_TYPES = {
    **{"episode": "str", "number": "int64", "phase": "str"},
    **dict.fromkeys(("checkpoint", "policy", "attempt"), "int64"),
    **{"task": "object", "termination": "str", "score": "float64", "success": "float64"},
    **dict.fromkeys(("actions", "skill_calls", "invalid_calls"), "int64"),
    **dict.fromkeys(("repeated_calls", *COSTS, "seconds"), "float64"),
    **dict.fromkeys(("unreported", "answers", "thought_cut"), "int64"),
}
"""Columns of `frame_episodes` with their types, which an empty frame has, too."""

SLEEP_TYPES = {
    **dict.fromkeys(("sleep", "rollouts", "attempt", "accepted", "refused", "replayed"), "int64"),
    **dict.fromkeys(COSTS[:-1], "int64"),
    **dict.fromkeys(("usd", "thought_cut", "seconds"), "float64"),
    **dict.fromkeys(("prefix_before", "prefix_after", "prefix_invalidated"), "Int64"),
    "error": "str",
}
"""Columns of `frame_sleeps` with their types."""

LABELS, USAGE = Labels.__struct_fields__, Usage.__struct_fields__

REQUEST_TYPES: dict[str, Any] = {
    **{"request": "str", "retry": "int64", "time": "float64"},
    **{"labels_phase": "str", "labels_policy": "Int64", "labels_episode": "str"},
    **{"labels_attempt": "Int64", "labels_role": "str", "labels_replica": "Int64"},
    **{"model": "str", "status": "str", "wasted": "bool"},
    **{f"usage_{name}": "Int64" for name in USAGE},
    **{"seconds": "float64", "error": "str", "cacheable": "Int64"},
    **{f"at_most_{name}": "Int64" for name in USAGE},
    **{"thought_cut": "bool", "usd": "float64"},
}
"""Columns of `frame_requests` with their types."""


def frame_episodes(rows: Sequence[EpisodeRow], costs: RunCosts | None = None) -> pandas.DataFrame:
    """Return one row per finished episode, sorted by key, with the columns `EPISODE_TYPES`.

    `number` is the last part of the key, or -1. `unreported` counts requests with unknown tokens, `answers`
    counts answers, and `thought_cut` those whose reasoning ended at its budget.

    Args:
        costs: the run's priced ledger, with the requests of all roles. `None`: tokens are those of the
            episode's own turns, and USD are unknown.
    """
    found = []
    for row in sorted(rows, key=attrgetter("episode")):
        line = Spend() if costs is None else costs.episodes.get(row.episode, Spend())
        tokens = _count_tokens(Classes.of(row.usage) if costs is None else line.useful)
        found.append(
            {
                **{name: getattr(row, name, None) for name in EPISODE_TYPES},
                "number": _number(row.episode),
                "termination": row.termination.value,
                "success": None if row.success is None else float(row.success),
                **(tokens if row.llm_calls else {"llm_calls": None}),
                "unreported": line.unreported,
                "answers": line.answers,
                "thought_cut": line.thought_cut,
            }
        )
    frame = make_frame(found, EPISODE_TYPES)
    frame["usd"] = price_episodes(frame, costs)
    return frame


def price_episodes(episodes: pandas.DataFrame, costs: RunCosts | None) -> list[float]:
    """Return the USD of the rows of `frame_episodes`; NaN if no price is known, and for an episode without a
    request.

    They include an equal share of the warm-ups of the episode's prompt prefix, which later policies may have,
    too; tokens do not.
    """
    usd = list_usd(episodes["episode"], costs)
    if costs is None:
        return usd
    played = episodes["llm_calls"].notna()
    prefixes = [costs.prefixes.get(policy, policy) for policy in episodes["policy"]]
    served = Counter(prefix for prefix, is_played in zip(prefixes, played, strict=True) if is_played)
    warm_up = {
        prefix: costs.warm_ups.get(prefix, Spend()).useful_usd / count for prefix, count in served.items()
    }
    return [
        own + warm_up[prefix] if is_played else nan
        for own, prefix, is_played in zip(usd, prefixes, played, strict=True)
    ]


def list_usd(keys: Iterable[str], costs: RunCosts | None) -> list[float]:
    """Return the USD of episodes and sleeps, by their labels in the ledger; NaN if no price is known."""
    if costs is None or costs.book.prices is None:
        return [nan for _ in keys]
    return [costs.episodes.get(key, Spend()).useful_usd for key in keys]


def frame_sleeps(run: RunData, costs: RunCosts | None) -> pandas.DataFrame:
    """Return one row per sleep, by its number, with the columns `SLEEP_TYPES`.

    `llm_calls`, tokens and USD include the episodes that the sleep played again, which `replayed` counts.
    `accepted` and `refused` count edits. `thought_cut` is the share of its answers whose reasoning
    ended at its budget. `prefix_invalidated` are the tokens of the prompt prefix that the
    sleep made useless in the cache.

    Args:
        costs: as for `frame_episodes`.
    """
    found = []
    for record in run.sleeps:
        key, prefix = sleep_key(record.sleep), record.prefix
        inducer = Spend() if costs is None else costs.episodes.get(key, Spend())
        found.append(
            {
                **{name: getattr(record, name, None) for name in SLEEP_TYPES},
                "llm_calls": len(record.turns),
                "replayed": len(record.episodes),
                **_count_tokens(Classes.of(record.usage) if costs is None else inducer.useful),
                "thought_cut": inducer.thought_cut_share,
                "prefix_before": prefix.before if prefix else None,
                "prefix_after": prefix.after if prefix else None,
                "prefix_invalidated": prefix.lost if prefix else None,
            }
        )
    frame = make_frame(found, SLEEP_TYPES)
    frame["usd"] = list_usd(map(sleep_key, frame["sleep"]), costs)
    return frame


def frame_requests(run: RunData, book: PriceBook) -> pandas.DataFrame:
    """Return one row per request of the ledger, with the columns `REQUEST_TYPES`.

    Args:
        book: the prices.
    """
    import numpy
    import pandas

    columns, models = run.columns, [model for _, model in run.columns.kinds]
    labels = [Labels.of(own) for own in columns.labels]
    found: dict[str, Any] = {**vars(columns), "model": pandas.array(models, dtype="str").take(columns.kind)}
    for name in LABELS:
        column = f"labels_{name}"
        distinct = pandas.array([getattr(own, name) for own in labels], dtype=REQUEST_TYPES[column])
        found[column] = distinct.take(columns.kind)
    for prefix, is_known in (("usage", columns.is_reported), ("at_most", columns.is_bounded)):
        for name, tokens in vars(found[prefix]).items():
            found[f"{prefix}_{name}"] = pandas.arrays.IntegerArray(tokens, ~is_known)
    found["cacheable"] = pandas.arrays.IntegerArray(columns.cacheable, columns.cacheable < 0)
    found["usd"] = numpy.full(len(columns.kind), numpy.nan)
    if book.prices is not None:
        usd = book.prices.cost(found["usage"])
        found["usd"] = numpy.where(columns.is_reported, usd, numpy.nan)
    return pandas.DataFrame({name: found[name] for name in REQUEST_TYPES}, copy=False).astype(REQUEST_TYPES)


def _count_tokens(tokens: Classes) -> dict[str, float]:
    """Return the tokens of an episode or a sleep by column."""
    return {
        "uncached": tokens.computed,
        "cached": tokens.cached,
        "output": tokens.reasoning + tokens.action,
        "reasoning": tokens.reasoning,
    }


def _number(episode: str) -> int:
    """Return the last part of an episode's key as a number; -1 if it is not a number."""
    last = episode.rpartition("/")[2]
    return int(last) if re.fullmatch(r"[0-9]{1,9}", last) else -1


def make_frame(rows: Iterable[Mapping[str, Any]], types: Mapping[str, str]) -> pandas.DataFrame:
    """Return rows as a frame with these columns and types, which an empty frame has, too."""
    import pandas

    values = [tuple(map(row.get, types)) for row in rows]
    return pandas.DataFrame(values, columns=[*types], dtype=object).astype(types)
