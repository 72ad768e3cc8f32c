"""The requests with the most uncached prompt tokens, and why the cache did not have these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speedrunner.results.frames import frame_requests
from speedrunner.results.ledger import WARM_UP
from speedrunner.results.pricing import OWN, PriceBook
from speedrunner.results.writing import list_rows
from speedrunner.store.records import PrefixChange
from speedrunner.store.run_data import RunData

COUNT = 5


def list_costly(run: RunData, count: int = COUNT) -> list[str]:
    """Return a line with the share of the run's uncached prompt tokens that a few requests have, and one for
    each of these: its number among those of its role in the episode, and the reason. None without uncached
    tokens."""
    rows = frame_requests(run, PriceBook(OWN, None))
    rows = rows[rows["usage_prompt"].notna()]
    rows["uncached"] = rows["usage_prompt"] - rows["usage_cached"]
    labels = ["labels_episode", "labels_attempt", "labels_role", "labels_policy"]
    rows["number"] = rows.groupby(labels, dropna=False).cumcount() + 1
    top, total = rows.nlargest(count, "uncached"), int(rows["uncached"].sum())
    if not total:
        return []
    changes = {sleep.sleep: sleep.prefix for sleep in run.sleeps if sleep.prefix}
    share = int(top["uncached"].sum()) / total
    lines = [f"{len(top)} of {len(rows)} requests have {share:.0%} of the uncached prompt tokens:"]
    for row in list_rows(top):
        where = " ".join(filter(None, (row["labels_episode"], row["labels_role"])))
        tokens = f"{row['uncached']} of {row['usage_prompt']} prompt tokens uncached"
        lines.append(f"  {where}, request {row['number']}: {tokens}: {_explain(row, changes)}")
    return lines


def _explain(row: Mapping[str, Any], changes: Mapping[int, PrefixChange]) -> str:
    """Return why most of a request's uncached tokens were not in the cache.

    Args:
        changes: of the prompt prefix, by the policy that a sleep made.
    """
    lost, change = (row["cacheable"] or 0) - row["usage_cached"], changes.get(row["labels_policy"])
    if 2 * lost > row["uncached"]:
        return f"eviction, {lost} tokens that an earlier request had left were gone"
    if row["labels_role"] == WARM_UP and change:
        kept = change.before - change.lost
        left = f"which left {kept} of {change.before} tokens of the prefix"
        return f"the edits of sleep {row['labels_policy']}, {left}"
    if row["labels_role"] == WARM_UP or row["number"] == 1 or not row["cacheable"]:
        return "the first prompt of a conversation"
    return "new text since the turn before"
