"""Test episodes and their means per checkpoint, as data frames. Every mean that is shown is computed here.

Definitions:

- **Unscored**: an episode that an infrastructure error ended. It is counted, but is in no mean.
- **Silent**: an episode without a request, for example because the tools alone exceed the context. Its score
  counts. Its calls, tokens and USD are missing, so that they enter no mean of costs.
- **Sleep share**: a sleep's cost is spread evenly over the rollouts of its batch (paper, Appendix A.3).
- **Cost per episode** (`cost_usd`): the mean USD of the checkpoint's test episodes, with all roles of the
  method (`actor_usd`), plus the mean sleep share of the rollouts since the previous checkpoint (`sleep_usd`).
- **Cost per rollout** (`rollout_usd`): the mean USD of the rollouts since the previous checkpoint, with their
  sleep shares.
- **Training spend** (`training_NAME` for each class of tokens and USD): the sum over all rollouts up to the
  checkpoint, of all roles (actor, curriculum, critic, programmer), with their shares of the sleeps' amounts
  (inducer, optimizer). It has no wasted attempts and no prefix warm-up, like the other costs here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from serving.usage import Usage
from speedrunner.results.inference import Estimate, bootstrap_mean
from speedrunner.results.ledger import Classes, Line, RunCosts
from speedrunner.store.records import EpisodeRow, Termination
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import sleep_key

if TYPE_CHECKING:
    import pandas

LIMITS = tuple(each.value for each in Termination if each.is_limit)
"""Terminations by a limit. A checkpoint has the share of its test episodes that each of them ended."""

CUT = (Termination.WALL_CLOCK.value, Termination.CONTEXT_OVERFLOW.value)
"""The limits of the machinery, not of the environment. Tables flag scores that they affect."""

SPENT = ("uncached", "cached", "output", "usd")
"""Tokens by class, and USD, that an episode or a sleep takes."""

TOKENS = ("uncached", "cached", "output", "reasoning")
"""Tokens by class. Reasoning tokens are a part of `output`."""

COSTS = ("llm_calls", *TOKENS, "usd")
"""Values that are missing for an episode without a request."""

EPISODE_TYPES = {
    "episode": "str",
    "number": "int64",
    "phase": "str",
    **dict.fromkeys(("checkpoint", "policy", "attempt"), "int64"),
    "task": "object",
    "termination": "str",
    **dict.fromkeys(("score", "success"), "float64"),
    **dict.fromkeys(("actions", "skill_calls", "invalid_calls"), "int64"),
    **dict.fromkeys(("repeated_calls", *COSTS, "seconds"), "float64"),
    "unreported": "int64",
    "at_most": "float64",
    **dict.fromkeys(("answers", "thought_cut"), "int64"),
}
"""Columns of `frame_episodes` with their types, which an empty frame has, too."""

SLEEP_TYPES = {
    **dict.fromkeys(("sleep", "rollouts", "attempt", "accepted", "refused", "replayed"), "int64"),
    **dict.fromkeys(("llm_calls", *TOKENS), "int64"),
    **dict.fromkeys(("usd", "thought_cut", "seconds"), "float64"),
    **dict.fromkeys(("prefix_before", "prefix_after", "prefix_invalidated"), "Int64"),
    "error": "str",
}
"""Columns of `frame_sleeps` with their types."""

MEANS = ("score", "llm_calls", "actions", "repeated_calls", "uncached", "cached", "output", "usd")
"""Columns for which a checkpoint has the mean over its scored test episodes."""


def frame_episodes(rows: Sequence[EpisodeRow], costs: RunCosts | None = None) -> pandas.DataFrame:
    """Return one row per finished episode, sorted by key, with the columns `EPISODE_TYPES`; unknown values
    are NaN.

    `number` is the last part of the key, or -1. `uncached`, `cached` and `output` are tokens, and `reasoning`
    is a part of `output`. `unreported` counts requests with unknown tokens, and `at_most` is the maximum of
    these tokens. `answers` counts answers, and `thought_cut` those whose thinking was closed at its budget.

    Args:
        costs: the run's priced ledger, with the requests of all roles. `None`: tokens are those of the
            episode's own turns, and USD are unknown.
    """
    import pandas

    rows = sorted(rows, key=lambda row: row.episode)
    lines = [Line() if costs is None else costs.episodes.get(row.episode, Line()) for row in rows]
    amounts = [episode_amounts(row, costs) for row in rows]
    columns: dict[str, list[Any]] = {
        "episode": [row.episode for row in rows],
        "number": [_number(row.episode) for row in rows],
        "phase": [row.phase for row in rows],
        "checkpoint": [row.checkpoint for row in rows],
        "policy": [row.policy for row in rows],
        "attempt": [row.attempt for row in rows],
        "task": [row.task for row in rows],
        "termination": [row.termination.value for row in rows],
        "score": [row.score for row in rows],
        "success": [None if row.success is None else float(row.success) for row in rows],
        "actions": [row.actions for row in rows],
        "skill_calls": [row.skill_calls for row in rows],
        "invalid_calls": [row.invalid_calls for row in rows],
        "repeated_calls": [row.repeated_calls for row in rows],
        **{name: [each[name] for each in amounts] for name in COSTS},
        "seconds": [row.seconds for row in rows],
        "unreported": [line.unreported for line in lines],
        "at_most": [line.at_most.total for line in lines],
        "answers": [line.answers for line in lines],
        "thought_cut": [line.thought_cut for line in lines],
    }
    return pandas.DataFrame(columns, dtype=None if rows else object).astype(EPISODE_TYPES)


def episode_amounts(row: EpisodeRow, costs: RunCosts | None = None) -> dict[str, float]:
    """Return the values `COSTS` of an episode; NaN if they are unknown, and for an episode without a request.

    Args:
        costs: as for `frame_episodes`.
    """
    if not row.llm_calls:
        return dict.fromkeys(COSTS, float("nan"))
    return {"llm_calls": row.llm_calls, **_spent(row.episode, row.usage, costs)}


def _spent(key: str, usage: Usage, costs: RunCosts | None) -> dict[str, float]:
    """Return the tokens by class and the USD of an episode or a sleep.

    Args:
        usage: its tokens if there is no ledger.
    """
    tokens, usd = Classes.of(usage), float("nan")
    if costs is not None:
        line = costs.episodes.get(key, Line())
        tokens, usd = line.useful, usd if costs.unpriced else line.useful_usd
    return {
        "uncached": tokens.computed,
        "cached": tokens.cached,
        "output": tokens.reasoning + tokens.action,
        "reasoning": tokens.reasoning,
        "usd": usd,
    }


def _number(episode: str) -> int:
    """Return the last part of an episode's key as a number; -1 if it is not a number."""
    last = episode.rpartition("/")[2]
    return int(last) if re.fullmatch(r"[0-9]{1,9}", last) else -1


def frame_sleeps(run: RunData, costs: RunCosts | None) -> pandas.DataFrame:
    """Return one row per sleep, by its number, with the columns `SLEEP_TYPES`; unknown values are missing.

    `llm_calls`, tokens and USD include the episodes that the sleep played again, which `replayed` counts.
    `accepted` and `refused` count edits. `thought_cut` is the share of the inducer's (or optimizer's) answers
    whose thinking was closed at its budget. `prefix_invalidated` are the tokens of the prompt prefix that the
    sleep made useless in the cache.

    Args:
        costs: as for `frame_episodes`.
    """
    import pandas

    found = []
    for record in run.sleeps:
        key, prefix = sleep_key(record.sleep), record.prefix
        inducer = Line() if costs is None else costs.sleeping_roles.get(key, Line())
        found.append(
            {
                "sleep": record.sleep,
                "rollouts": record.rollouts,
                "attempt": record.attempt,
                "llm_calls": len(record.turns),
                "accepted": record.accepted,
                "refused": record.refused,
                "replayed": len(record.attempts),
                **_spent(key, record.usage, costs),
                "thought_cut": inducer.thought_cut_share,
                "seconds": record.seconds,
                "prefix_before": prefix.before if prefix else None,
                "prefix_after": prefix.after if prefix else None,
                "prefix_invalidated": prefix.before - prefix.common if prefix else None,
                "error": record.error,
            }
        )
    return pandas.DataFrame(found, columns=[*SLEEP_TYPES]).astype(SLEEP_TYPES)


class EvaluationPoint(msgspec.Struct, frozen=True):
    """The test episodes of one checkpoint.

    Attributes:
        score: mean of those with a score; `None` without any.
        limited: share that limits ended.
        output: mean output tokens of those with a request and a score; `None` without any.
    """

    checkpoint: int
    episodes: int
    score: float | None
    limited: float
    output: float | None


def list_test_points(rows: Iterable[EpisodeRow]) -> list[EvaluationPoint]:
    """Return some columns of `average_tests`, ascending.

    This second implementation needs no pandas: importing it is too slow for `status` and for lists of runs.
    A property test compares the two.
    """
    tests: dict[int, list[EpisodeRow]] = {}
    for row in rows:
        if row.phase == "test":
            tests.setdefault(row.checkpoint, []).append(row)
    found = []
    for checkpoint, own in sorted(tests.items()):
        scores = [row.score for row in own if row.score is not None]
        limited = sum(row.termination.is_limit for row in own) / len(own)
        score = sum(scores) / len(scores) if scores else None
        outputs = [row.usage.completion for row in own if row.llm_calls and row.score is not None]
        output = sum(outputs) / len(outputs) if outputs else None
        found.append(EvaluationPoint(checkpoint, len(own), score, limited, output))
    return found


def estimate_test(episodes: pandas.DataFrame, point: int, column: str) -> Estimate | None:
    """Return the mean of a column over a checkpoint's scored test episodes with its bootstrap interval."""
    chosen = (episodes["phase"] == "test") & (episodes["checkpoint"] == point) & episodes["score"].notna()
    return bootstrap_mean(episodes[chosen][column].dropna().tolist())


def average_tests(episodes: pandas.DataFrame) -> pandas.DataFrame:
    """Return one row per checkpoint that has a test episode, indexed by its rollouts, ascending.

    Columns: `policy`; `episodes`, `unscored`, `silent` (counts); `LIMITS` (the share of the test episodes
    that each limit ended) and `limited` (their sum); `thought_cut` (the share of the actor's answers whose
    thinking was closed at its budget; NaN without a ledger); the means `MEANS`, with USD named `actor_usd`;
    `unreported` (sum) and `at_most` (tokens per episode).
    """
    tests = episodes[episodes["phase"] == "test"]
    points = tests["checkpoint"]
    by = tests.groupby(points)
    found = by.agg(policy=("policy", "first"), episodes=("episode", "size"))
    unknown = tests[["score", "llm_calls"]].isna().groupby(points).sum()
    found[["unscored", "silent"]] = unknown
    found["unreported"], found["at_most"] = by["unreported"].sum(), by["at_most"].mean()
    limited = tests[["checkpoint"]].assign(**{name: tests["termination"] == name for name in LIMITS})
    found[list(LIMITS)] = limited.groupby("checkpoint").mean()
    found["limited"] = found[list(LIMITS)].sum(axis=1)
    answers = by[["thought_cut", "answers"]].sum().astype(float)
    found["thought_cut"] = answers["thought_cut"] / answers["answers"]
    means = tests[tests["score"].notna()].groupby("checkpoint")[list(MEANS)].mean()
    return found.join(means).rename(columns={"usd": "actor_usd"})


def frame_checkpoints(run: RunData, costs: RunCosts) -> pandas.DataFrame:
    """Return the rows of `average_tests` with the costs and the size of the policies.

    Further columns: `sleep_usd`, `cost_usd`, `rollout_usd`; `training_NAME` for each of `SPENT`; `public` and
    `skills` (counts), `notes` (whether the policy has notes for the actor), `whole` (whether all planned
    episodes are finished).
    """
    return add_costs(run, frame_episodes(run.episodes, costs), frame_sleeps(run, costs))


def add_costs(run: RunData, episodes: pandas.DataFrame, sleeps: pandas.DataFrame) -> pandas.DataFrame:
    """Return `frame_checkpoints` from the frames of a run's episodes and sleeps."""
    found = average_tests(episodes)
    rollouts = share_sleeps(episodes, sleeps)
    points = found.index.to_numpy()
    place = points.searchsorted(rollouts["number"].to_numpy(), side="right")
    since = rollouts[place < len(points)].groupby(points[place[place < len(points)]])
    means = since[["usd", "sleep_usd"]].mean().reindex(found.index)
    found["sleep_usd"] = means["sleep_usd"].fillna(0.0)
    found["cost_usd"] = found["actor_usd"] + found["sleep_usd"]
    found["rollout_usd"] = means["usd"]
    spent = since[list(SPENT)].sum(min_count=1).reindex(found.index)
    spent["usd"] = spent["usd"].where(found["actor_usd"].isna(), spent["usd"].fillna(0.0))
    spent = spent.fillna(dict.fromkeys(SPENT[:-1], 0.0)).cumsum()
    found[[f"training_{name}" for name in SPENT]] = spent
    libraries = {version: _count_skills(run, int(version)) for version in found["policy"].unique()}
    for column, name in enumerate(("public", "skills", "notes")):
        found[name] = [libraries[version][column] for version in found["policy"]]
    found["whole"] = found["episodes"] >= run.settings.run.test_episodes
    return found


def _count_skills(run: RunData, version: int) -> tuple[int, int, bool]:
    """Return a policy's number of public skills and of all skills, and whether it has notes."""
    policy = run.policies.load(version)
    return sum(skill.public for skill in policy.skills), len(policy.skills), bool(policy.notes)


def share_sleeps(episodes: pandas.DataFrame, sleeps: pandas.DataFrame) -> pandas.DataFrame:
    """Return the training rollouts: `episode`, `number`, `sleep_usd` (share of the next sleep), and `SPENT`
    with their shares of that sleep."""
    train = episodes[episodes["phase"] == "train"][["episode", "number", "policy", *SPENT]].copy()
    for name in SPENT:
        per_rollout = sleeps[name] / sleeps["rollouts"]
        by_policy = per_rollout.set_axis(sleeps["sleep"] - 1).to_dict()
        share = train["policy"].map(by_policy).fillna(0.0).astype(float)
        if name == "usd":
            train["sleep_usd"] = share
        if name != "usd" or train[name].notna().any():  # otherwise no price is known
            train[name] = train[name].fillna(0.0) + share
    return train.drop(columns="policy")
