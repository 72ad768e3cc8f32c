"""Means of test episodes per checkpoint, and over seeds. `pairing` has the means of differences.

    frames.frame_episodes ─ average_tests ─ add_costs ─ average_seeds ─ tables, figures
         (episodes)          (a seed's checkpoints)     (a condition's checkpoints)

Definitions:

- **Unscored**: an episode that an infrastructure error ended. It is counted, but is in no mean.
- **Refused**: an unscored episode of which the provider refused a request for its content.
- **Silent**: an episode without a request, for example because the tools alone exceed the context. Its score
  counts. Its calls, tokens and USD are missing, so that they enter no mean of costs.
- **Sleep share**: a sleep's cost is spread evenly over the rollouts of its batch (paper, Appendix A.3).
- **Warm-up share**: the warm-ups of a prompt prefix are spread evenly over the episodes with a request that
  have this prefix, as a part of their USD. Policies share a prefix until a sleep changes it.
- **Cost per episode** (`cost_usd`): the mean USD of the checkpoint's test episodes, with all roles of the
  method (`actor_usd`), plus the mean sleep share of the rollouts since the previous checkpoint (`sleep_usd`).
- **Cost per rollout** (`rollout_usd`): the mean USD of the rollouts since the previous checkpoint that sent a
  request, plus the mean sleep share of all of them.
- **Training spend** (`training_NAME` for each class of tokens and USD): the sum over all rollouts up to the
  checkpoint, of all roles (actor, curriculum, critic, programmer), with their shares of the sleeps' amounts
  (inducer, optimizer). It has no wasted attempts; USD alone have the prefix warm-ups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import msgspec

from speedrunner.config.condition import COLUMNS
from speedrunner.results.frames import frame_episodes, frame_sleeps
from speedrunner.results.ledger import RunCosts
from speedrunner.results.pricing import RuleName
from speedrunner.store.records import Termination
from speedrunner.store.run_data import RunData

if TYPE_CHECKING:
    import pandas


class Measure(msgspec.Struct, frozen=True):
    """A value of a test episode.

    Attributes:
        name: its column in frames of episodes, in the means of checkpoints, and in tables.
        title: its name for people.
        digits: decimals for people.
        is_spent: whether training spends it, too: its table sums it over rollouts and sleeps.
        is_compared: whether `speedrunner compare` shows it.
    """

    name: str
    title: str
    digits: int
    is_spent: bool = False
    is_compared: bool = True

    @property
    def short_title(self) -> str:
        """Return the title for narrow tables, in which tokens have the name of their class."""
        return self.name if self.title.endswith("tokens") else self.title


MEASURES = (
    Measure("score", "score", 3),
    Measure("llm_calls", "LLM calls", 1),
    Measure("actions", "actions", 1, is_compared=False),
    Measure("repeated_calls", "repeated calls", 1, is_compared=False),
    Measure("uncached", "uncached prompt tokens", 0, is_spent=True),
    Measure("cached", "cached prompt tokens", 0, is_spent=True),
    Measure("output", "output tokens", 0, is_spent=True),
    Measure("usd", "test USD", 6, is_spent=True),
)

MEANS = tuple(each.name for each in MEASURES)
SPENT = tuple(each.name for each in MEASURES if each.is_spent)
"""Tokens by class, and USD: what an episode or a sleep takes."""

RULES: tuple[RuleName, ...] = ("cold", "provider")
"""Cache rules by which claims on USD are judged as well as by the engine's cache."""

AVERAGED = (*MEANS[:-1], "cost_usd", *(f"cost_usd_{rule}" for rule in RULES), "thought_cut")
"""Columns of a checkpoint in the tables, per test episode; `thought_cut` is a share of the answers."""

COUNTS = ("episodes", "unscored", "refused", "silent")
TRAINING = tuple(f"training_{name}" for name in SPENT)

TESTED = ("score", "output", "cost_usd")
"""The metrics of tests between conditions."""

LIMITS = tuple(each.value for each in Termination if each.is_limit)
"""Terminations by a limit. A checkpoint has the share of its test episodes that each of them ended."""

CONDITION = [*COLUMNS, "checkpoint"]
"""Columns that identify a condition's checkpoint in frames of several runs."""


def average_tests(episodes: pandas.DataFrame, planned: int) -> pandas.DataFrame:
    """Return one row per checkpoint that has a test episode, indexed by its rollouts, ascending.

    Columns: `policy`; `episodes`, `planned`, `unscored`, `refused`, `silent` (counts); `complete` (whether
    all planned episodes are finished: the mean of fewer says little, since the fast ones finish first);
    `LIMITS` (the share of the test episodes that each limit ended) and `limited` (their sum); `thought_cut`
    (the share of the actor's answers whose reasoning ended at its budget; NaN without a ledger); the means
    `MEANS`, with USD named `actor_usd` (`actor_usd_RULE` for `usd_RULE`); `cached_share` (of the prompt
    tokens).

    Args:
        planned: test episodes of an evaluation, `run.test_episodes`.
    """
    tests = episodes[episodes["phase"] == "test"]
    unknown = {"unscored": tests["score"].isna(), "silent": tests["llm_calls"].isna()}
    ends = {name: tests["termination"] == name for name in (Termination.REFUSED.value, *LIMITS)}
    by = tests.assign(**unknown, **ends).groupby("checkpoint")
    found = by[["policy"]].first().assign(episodes=by.size())
    found[["unscored", "silent", "refused"]] = by[["unscored", "silent", "refused"]].sum()
    found["planned"], found["complete"] = planned, found["episodes"] >= planned
    found[list(LIMITS)] = by[list(LIMITS)].mean()
    found["limited"] = found[list(LIMITS)].sum(axis=1)
    answers = by[["thought_cut", "answers"]].sum().astype(float)
    found["thought_cut"] = answers["thought_cut"] / answers["answers"]
    scored = tests[tests["score"].notna()].groupby("checkpoint")
    means = scored[list(dict.fromkeys([*MEANS, *list_usd_columns(tests)]))].mean()
    means["cached_share"] = means["cached"] / (means["cached"] + means["uncached"])
    return found.join(means.rename(columns=lambda name: name.replace("usd", "actor_usd")))


def list_usd_columns(frame: pandas.DataFrame) -> list[str]:
    """Return the columns with USD: `usd`, and those of other cache rules (`usd_RULE`)."""
    return [name for name in map(str, frame) if name.startswith("usd")]


def frame_checkpoints(run: RunData, costs: RunCosts) -> pandas.DataFrame:
    """Return the rows of `average_tests` with the costs and the size of the policies.

    Further columns: `sleep_usd`, `cost_usd`, `rollout_usd`; `training_NAME` for each of `SPENT`; `public` and
    `skills` (counts), `notes` (whether the policy has notes for the actor).
    """
    return add_costs(run, frame_episodes(run.episodes, costs), frame_sleeps(run, costs))


def add_costs(run: RunData, episodes: pandas.DataFrame, sleeps: pandas.DataFrame) -> pandas.DataFrame:
    """Return `frame_checkpoints` from the frames of a run's episodes and sleeps. If both have USD by other
    cache rules (`usd_RULE`), so have `sleep_usd_RULE` and `cost_usd_RULE`."""
    found = average_tests(episodes, run.settings.run.test_episodes)
    usd = list_usd_columns(sleeps)
    points, rollouts = found.index.to_numpy(), share_sleeps(episodes, sleeps, [*SPENT, *usd[1:]])
    place = points.searchsorted(rollouts["number"].to_numpy(), side="right")
    is_before = place < len(points)  # the others were played after the last checkpoint
    since = rollouts[is_before].groupby(points[place[is_before]])
    means = since[["own_usd", *(f"sleep_{name}" for name in usd)]].mean().reindex(found.index)
    for name in usd:
        found[f"sleep_{name}"] = means[f"sleep_{name}"].fillna(0.0)
        found[f"cost_{name}"] = found[f"actor_{name}"] + found[f"sleep_{name}"]
    found["rollout_usd"] = means["own_usd"] + means["sleep_usd"]
    spent = since[list(SPENT)].sum(min_count=1).reindex(found.index)
    spent["usd"] = spent["usd"].where(found["actor_usd"].isna(), spent["usd"].fillna(0.0))
    spent = spent.fillna(dict.fromkeys(SPENT[:-1], 0.0)).cumsum()
    found[[f"training_{name}" for name in SPENT]] = spent
    policies = {version: run.policies.load(int(version)) for version in found["policy"].unique()}
    own = [policies[version] for version in found["policy"]]
    found["public"] = [sum(skill.public for skill in policy.skills) for policy in own]
    found["skills"] = [len(policy.skills) for policy in own]
    found["notes"] = [bool(policy.notes) for policy in own]
    return found


def share_sleeps(
    episodes: pandas.DataFrame, sleeps: pandas.DataFrame, spent: Sequence[str] = SPENT
) -> pandas.DataFrame:
    """Return the training rollouts: `episode`, `number`, `own_usd` (missing without a request), `sleep_usd`
    (share of the next sleep; so for each column with USD), and `spent` with their shares of that sleep."""
    train = episodes[episodes["phase"] == "train"][["episode", "number", "policy", *spent]].copy()
    for name in spent:
        per_rollout = sleeps[name] / sleeps["rollouts"]
        by_policy = per_rollout.set_axis(sleeps["sleep"] - 1).to_dict()
        share = train["policy"].map(by_policy).fillna(0.0).astype(float)
        is_usd = name.startswith("usd")
        if is_usd:
            train[f"own_{name}"], train[f"sleep_{name}"] = train[name], share
        if not is_usd or train[name].notna().any():  # otherwise no price is known
            train[name] = train[name].fillna(0.0) + share
    return train.drop(columns="policy")


def average_seeds(frame: pandas.DataFrame, columns: Sequence[str]) -> pandas.DataFrame:
    """Return, by condition and checkpoint, `seeds` (the number with a value in the first column), then each
    column's mean over seeds and `NAME_std`, the sample's standard deviation."""
    by = frame.groupby(CONDITION)[[*columns]]
    found = by.mean().join(by.std().add_suffix("_std"))
    found.insert(0, "seeds", by.count()[columns[0]])
    return found[["seeds", *(name for column in columns for name in (column, f"{column}_std"))]]


class Spread(msgspec.Struct, frozen=True):
    """Mean and standard deviation over seeds; `sd` is the sample's and `None` for one seed."""

    mean: float
    sd: float | None
    seeds: int

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return the ends of one standard deviation around the mean; `None` for one seed."""
        return None if self.sd is None else (self.mean - self.sd, self.mean + self.sd)


def spread_seeds(seeds: Iterable[pandas.Series[float]]) -> dict[int, Spread]:
    """Return mean and deviation over the seeds that have a value, from each seed's values by checkpoint."""
    values: dict[int, list[float]] = {}
    for seed in seeds:
        known = seed.astype(float).dropna()
        for point, value in zip(known.index.tolist(), known.tolist(), strict=True):
            values.setdefault(point, []).append(value)
    return {
        point: Spread(fmean(own), stdev(own) if len(own) > 1 else None, len(own))
        for point, own in sorted(values.items())
    }


def average(parts: Sequence[Spread]) -> Spread:
    """Return the mean over several environments, of their means and of their deviations, as the
    paper does."""
    deviations = [part.sd for part in parts if part.sd is not None]
    sd = sum(deviations) / len(deviations) if len(deviations) == len(parts) else None
    return Spread(sum(part.mean for part in parts) / len(parts), sd, min(part.seeds for part in parts))
