"""The history of skills as text, with the observed savings of each."""

from __future__ import annotations

from collections.abc import Iterator

from speedrunner.results.inference import Estimate
from speedrunner.results.skill_savings import Amount, SkillSaving, skill_savings, sort_savings
from speedrunner.results.skill_table import skill_events, skill_history
from speedrunner.store.run_data import RunData


def blame_lines(run: RunData, sort: Amount | None = None) -> Iterator[str]:
    """Yield each skill's versions and its observed savings as text.

    Args:
        sort: the saved amount by which skills are sorted, the largest first; `None`: the order of creation.

    Raises:
        StorageError: the run cannot be read, or a policy's library is damaged.
    """
    history = skill_history(run)
    if not history.versions:
        yield "(no sleep has made a skill yet)"
    events = skill_events(run, history)
    savings = skill_savings(run, history)
    for saving in savings if sort is None else sort_savings(savings, sort):
        yield f"{saving.skill} ({'public' if history.by_name[saving.skill][-1].public else 'private'})"
        yield from (f"  {event}" for event in events[saving.skill])
        yield f"  {describe_saving(saving)}"


def describe_saving(saving: SkillSaving) -> str:
    """Return the estimates of LLM calls, output tokens, USD and score in one line."""
    if not saving.tasks:
        return "saved: no estimate, as no task was played both with and without a call"
    amounts = (
        (saving.llm_calls, ".1f", "LLM calls"),
        (saving.output, ".0f", "output tokens"),
        (saving.usd, ".6f", "USD"),
        (saving.score, "+.3f", "score"),
    )
    parts = [
        f"{unit} {format_estimate(found, format_)}" for found, format_, unit in amounts if found is not None
    ]
    tasks = "1 task" if saving.tasks == 1 else f"{saving.tasks} tasks"
    return f"saved per episode, {tasks}: {', '.join(parts)}"


def format_estimate(estimate: Estimate, format_: str) -> str:
    """Return a mean with its interval, if it has one.

    Args:
        format_: the format of each number, such as `.1f`.
    """
    mean = f"{estimate.mean:{format_}}"
    if estimate.ends is None:
        return mean
    return f"{mean} ({' to '.join(f'{end:{format_}}' for end in estimate.ends)})"
