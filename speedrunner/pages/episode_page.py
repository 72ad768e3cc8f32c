"""The index of a run's episodes, and an episode's page: its turns, and the playback of its primitives."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from speedrunner.agents.reading import task_line
from speedrunner.agents.texts import describe_failure, find_first_error, with_tools
from speedrunner.pages.html_parts import (
    TURNS,
    UNKNOWN,
    Context,
    NotFound,
    heading,
    html_table,
    link,
    page_part,
)
from speedrunner.pages.playback import (
    CREDITS,
    DRAWN,
    list_modules,
    list_steps,
    make_playback,
    replay_pictures,
)
from speedrunner.results.skill_table import skill_history
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import Trajectory
from speedrunner.store.run_data import RunData

PICTURES = 1_000
"""Steps of a page with a picture."""


def episodes_page(run: RunData) -> Context:
    """Return the index of a run: its episodes with the skills that ran in them."""
    history = skill_history(run)
    rows = []
    for row in sorted(run.rows, key=lambda row: row.episode):
        skills = history.calls.get(row.episode, {})
        usage = row.usage
        rows.append(
            [
                link(f"./{row.episode}/1.html", row.episode),
                row.score,
                UNKNOWN if row.success is None else "success" if row.success else "failure",
                row.termination.value.replace("_", " "),
                row.phase,
                *(row.llm_calls, row.actions, row.invalid_calls, row.repeated_calls),
                *(usage.uncached, usage.cached, usage.completion),
                link(f"library/{row.policy:04d}.html", row.policy),
                f"{row.task.name} {row.task.index}",
                ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in skills.items()),
            ]
        )
    columns = (
        *(
            "episode",
            "score",
            "result",
            "end",
            "phase",
            "LLM calls",
            "actions",
            "invalid",
            "repeated",
            "uncached",
        ),
        *("cached", "output tokens", "library", "task", "skills that ran"),
    )
    table = html_table(columns, rows, label="Episodes", kind="episodes sortable")
    values = zip(*(row[2:5] for row in rows), strict=True) if rows else [(), (), ()]
    names = dict(zip(("results", "ends", "phases"), (sorted({*own}) for own in values), strict=True))
    return {**heading(run), "table": table, "count": len(rows), **names}


def find_episode(run: RunData, key: str) -> Trajectory:
    """Return a finished episode, or one that was played in a sleep. Raises `NotFound`."""
    for record in run.sleeps if key.startswith("sleep/") else ():
        for again in reversed(record.episodes):
            if again.episode == key:
                return again
    row = next((row for row in run.rows if row.episode == key), None)
    trajectory = None if row is None else run.find(row)
    if trajectory is None:
        raise NotFound(f"the run does not have episode {key} now")
    return trajectory


def episode_page(run: RunData, key: str, page: int) -> Context:
    """Return some turns of an episode, and what is above them. Raises `NotFound`."""
    whole = _describe_episode(run, key)
    trajectory: Trajectory = whole["trajectory"]
    part = page_part(trajectory.turns, page)
    first = part["first"]
    return {
        **heading(run),
        **whole,
        "playback": _make_playback(run, whole, first),
        **part,
        "turns": [
            (number, with_tools(turn, turn.role, trajectory.policy, run))
            for number, turn in enumerate(part["shown"], start=first)
        ],
    }


@lru_cache(maxsize=1)
def _describe_episode(run: RunData, key: str) -> Context:
    """Return what all pages of an episode need: they are written one after another. Raises `NotFound`."""
    trajectory = find_episode(run, key)
    keys = sorted(row.episode for row in run.rows)
    at = keys.index(trajectory.episode) if trajectory.episode in keys else None
    error = find_first_error(trajectory.turns)
    outcome = trajectory.outcome
    steps = list_steps(trajectory)
    return {
        "trajectory": trajectory,
        "result": _describe_result(trajectory),
        "task": task_line({"turns": msgspec.to_builtins(trajectory.turns[:1])}),
        "failure": describe_failure(trajectory),
        "error": None if error is None else error + 1,
        "numbers": _list_numbers(trajectory),
        "detail": "" if outcome is None else msgspec.json.encode(outcome.detail).decode(),
        "before": keys[at - 1] if at else None,
        "after": keys[at + 1] if at is not None and at + 1 < len(keys) else None,
        "credit": CREDITS.get(trajectory.task.env, ""),
        "steps": steps,
        "modules": list_modules(run, trajectory) if steps else [],
    }


def _describe_result(trajectory: Trajectory) -> tuple[str, str]:
    """Return the kind and the text of an episode's badge."""
    outcome, text = trajectory.outcome, trajectory.termination.value.replace("_", " ")
    if outcome is None:
        return "warn", text
    return "good" if outcome.success else "bad", f"{text}, score {outcome.score:.3g}"


def _list_numbers(trajectory: Trajectory) -> list[tuple[str, str, str]]:
    """Return the headline numbers of an episode."""
    row = summarize_episode(trajectory, "test", 0)
    usage, executed = row.usage, [turn.executed for turn in trajectory.turns if turn.executed]
    primitives = sum(node.kind == "primitive" for node in executed)
    waited = sum(turn.queued_s for turn in trajectory.turns)
    calls = f"{row.invalid_calls:,} invalid, {row.repeated_calls:,} repeated"
    actions = f"calls: {row.skill_calls:,} of skills, {primitives:,} of primitives"
    cached = f"{usage.cached / usage.prompt:.0%} cached" if usage.prompt else ""
    return [
        ("LLM calls", f"{row.llm_calls:,}", calls),
        ("Actions", f"{row.actions:,}", actions),
        ("Output tokens", f"{usage.completion:,}", f"{usage.reasoning:,} reasoning"),
        ("Prompt tokens", f"{usage.prompt:,}", cached),
        ("Seconds", f"{trajectory.seconds:,.1f}", f"{waited:,.1f} waited" if waited else ""),
    ]


def _make_playback(run: RunData, whole: Context, first: int) -> Context | None:
    """Return the playback of a page's turns; `None` if they have no primitive.

    Args:
        whole: the episode, as of `_describe_episode`.
        first: number of the page's first turn.
    """
    trajectory, steps = whole["trajectory"], whole["steps"]
    skipped = sum(step.turn < first for step in steps) if first > 1 else 0
    shown = [step for step in steps[skipped:] if step.turn < first + TURNS]
    if not shown:
        return None
    pictures = replay_pictures(run, trajectory, skipped, min(len(shown), PICTURES))
    starts: dict[int, int] = {}
    for position, step in enumerate(shown, start=1):
        starts.setdefault(step.turn, position)
    return {
        "data": make_playback(shown, whole["modules"], pictures),
        "last": len(shown),
        "error": next((at for at, step in enumerate(shown, start=1) if step.node.failed), 0),
        "starts": starts,
        "pictured": trajectory.task.env in DRAWN,
    }
