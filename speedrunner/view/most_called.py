"""The skills of an environment that were called most, and their changes, as in the paper's Appendix I."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speedrunner.config.names import condition_name
from speedrunner.config.schema import LibraryConfig
from speedrunner.results.checkpoints import list_test_points
from speedrunner.results.skill_evolution import follow_skills, list_changes
from speedrunner.results.skill_table import SkillHistory
from speedrunner.store.discovery import DAMAGED
from speedrunner.store.run_data import RunData, load

TOP = 8
"""Shown skills of a run."""

RUNS = 24
"""Shown runs of an environment."""


def find_best(runs: Mapping[str, Path]) -> dict[str, list[tuple[str, float | None]]]:
    """Return, by environment, the run of each method and model with the highest last score.

    A run without a score counts as the lowest. Runs that cannot be read are left out.

    Args:
        runs: by their names in addresses.

    Returns:
        Names in addresses and scores, in the order of methods and models.
    """
    best: dict[str, dict[tuple[str, str], tuple[str, float | None]]] = {}
    for slug, path in runs.items():
        try:
            run = load(path, skip_broken=True)
            if run.settings.library != LibraryConfig():  # shows a part of another run's library
                continue
            named = condition_name(run.settings)
            scores = [each.score for each in list_test_points(run.rows) if each.score is not None]
        except DAMAGED:
            continue
        score = scores[-1] if scores else None
        own = best.setdefault(named.env, {})
        before = own.get((named.method, named.model))
        if before is None or _rank(score) > _rank(before[1]):
            own[named.method, named.model] = slug, score
    return {env: [own[key] for key in sorted(own)] for env, own in best.items()}


def _rank(score: float | None) -> float:
    return float("-inf") if score is None else score


def describe_run(slug: str, score: float | None, run: RunData, history: SkillHistory) -> dict[str, Any]:
    """Return the most called skills of a run for the template, with their changes."""
    written = follow_skills(history)
    evolutions = [each for each in written if each.calls]
    batches = sorted({row.policy for row in run.rows if row.phase == "train"})
    named = condition_name(run.settings)
    most = sorted(evolutions, key=lambda each: -each.calls)[:TOP]
    return {
        "slug": slug,
        "title": f"{named.method}, {named.model}, seed {run.settings.run.seed}",
        "score": score,
        "sleeps": {each.sleep for each in run.sleeps},
        "versions": set(run.policies.versions()),
        "skills": [(each, list_changes(each, batches)) for each in most],
        "called": len(evolutions),
        "written": len(written),
    }
