"""One run in the numbers that tables are made of; the run itself is let go of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from envs import Task
from speedrunner.config.names import Setting, setting
from speedrunner.config.schema import Config
from speedrunner.costs.checkpoints import checkpoint_rows
from speedrunner.costs.ledger import Line, RunCosts, run_costs
from speedrunner.costs.pricing import OWN, price_book
from speedrunner.costs.server_time import ServerUse, server_uses
from speedrunner.experiments.forecast import truth
from speedrunner.runs.identity import remarks
from speedrunner.statistics.comparison import METRICS
from speedrunner.statistics.libraries import LibraryStatistics, library_statistics
from speedrunner.statistics.skill_costs import SkillCost, skill_costs
from speedrunner.statistics.skills import skill_history
from speedrunner.store.data import RunData, load
from speedrunner.store.records import EpisodeRow, PrefixChange, Process, SleepRecord, Turn
from speedrunner.store.stored_run import sleep_key

MEASURES = ("score", "llm_calls", "actions", "uncached", "cached", "output", "cost_usd")
"""Of one test episode. Tokens and USD are of its own requests, of all roles, without what was wasted."""


class Tested(msgspec.Struct, frozen=True):
    """One test episode with a score; of `values`, `cost_usd` is missing where no price is known."""

    episode: str
    task: Task
    values: dict[str, float]


class Checkpoint(msgspec.Struct, frozen=True):
    """A whole evaluation.

    Attributes:
        played: test episodes, those without a score included.
        tested: those that have one.
        sleep_usd: what the sleep that made the policy cost, per rollout of its batch.
        training_usd: mean cost of the rollouts since the checkpoint before, with their share of the sleeps.
        library: of the policy.
    """

    rollouts: int
    played: int
    tested: list[Tested]
    sleep_usd: float
    training_usd: float | None
    library: LibraryStatistics

    def values(self, measure: str) -> list[float]:
        """Of the test episodes; `cost_usd` is of those alone, without `sleep_usd`."""
        return [each.values[measure] for each in self.tested if measure in each.values]

    def mean(self, measure: str) -> float | None:
        """Over the test episodes; `cost_usd` includes `sleep_usd`, `actor_usd` does not."""
        values = self.values("cost_usd" if measure == "actor_usd" else measure)
        if not values:
            return None
        return sum(values) / len(values) + (self.sleep_usd if measure == "cost_usd" else 0.0)


class Slept(msgspec.Struct, frozen=True, kw_only=True):
    """One sleep; `accepted` and `refused` are edits, `prefix` as in `PrefixChange`."""

    sleep: int
    rollouts: int
    llm_calls: int
    accepted: int
    refused: int
    uncached: float
    cached: float
    output: float
    cost_usd: float | None
    seconds: float
    prefix: PrefixChange | None
    error: str | None


class Summary(msgspec.Struct, frozen=True):
    """One run.

    Attributes:
        checkpoints: by rollouts; those whose test episodes were all played.
        unfinished: checkpoints of the plan of which that is not so.
        endings: how many episodes of (phase, checkpoint) ended in which way.
        prices: what the list is called that it is priced by.
        processes: that worked on it, oldest first.
        taken: what the run has taken in all, by measure of `speedrunner.experiments.forecast`; without engine
            time, whose share only all runs of a server tell.
        servers: its uses of them, for that.
        remarks: what its models' cards say of their results.
    """

    path: str
    config: Config
    setting: Setting
    prices: str
    checkpoints: dict[int, Checkpoint]
    unfinished: list[int]
    endings: Counter[tuple[str, int, str]]
    sleeps: list[Slept]
    skills: list[SkillCost]
    processes: list[Process]
    taken: dict[str, float]
    servers: list[ServerUse]
    remarks: list[str] = []

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.config.run.seed

    @property
    def began(self) -> float | None:
        """When its first process did, in Unix seconds; `None` where none has."""
        return self.processes[0].started if self.processes else None

    @property
    def last(self) -> Checkpoint | None:
        """The last whole evaluation."""
        return self.checkpoints[max(self.checkpoints)] if self.checkpoints else None


def ended(runs: Iterable[Summary]) -> dict[str, int]:
    """How many episodes of runs ended in which way, most of them first."""
    found: Counter[str] = Counter()
    for run in runs:
        for (_, _, ending), count in run.endings.items():
            found[ending] += count
    return dict(found.most_common())


def summarise(path: Path, prices: str | None) -> Summary:
    """Read a run, finished or not, and price it.

    Raises:
        StorageError, InvalidConfig: it is damaged; there are other errors where its records do not fit each
            other (`speedrunner.experiments.damage` has all of them).
    """
    run = load(path)
    config = run.settings
    if not run.processes:  # it has been made, and nothing more
        return Summary(
            path=str(path),
            config=config,
            setting=setting(config),
            prices=prices or OWN,
            checkpoints={},
            unfinished=run.checkpoints,
            endings=Counter(),
            sleeps=[],
            skills=[],
            processes=[],
            taken={},
            servers=[],
        )
    (costs,) = run_costs([run], [price_book(run, prices)])
    history = skill_history(run)
    statistics = {
        policy: library_statistics(history.libraries[policy].definitions)
        for policy in sorted({row.policy for row in run.episodes if row.phase == "test"})
    }
    checkpoints = dict(_checkpoints(run, config, costs, statistics))
    return Summary(
        path=str(path),
        config=config,
        setting=setting(config),
        prices=costs.book.name,
        checkpoints=checkpoints,
        unfinished=sorted(set(run.checkpoints).difference(checkpoints)),
        endings=Counter((row.phase, row.checkpoint, row.ending.value) for row in run.episodes),
        sleeps=list(_sleeps(run, costs)),
        skills=skill_costs(run, costs, history),
        processes=run.processes,
        taken={name: amount for name, amount in truth(run, costs).items() if name != "engine_s"},
        servers=list(server_uses(run)),
        remarks=remarks(run.processes),
    )


def _checkpoints(
    run: RunData, config: Config, costs: RunCosts, statistics: dict[int, LibraryStatistics]
) -> Iterator[tuple[int, Checkpoint]]:
    rollouts = {record.sleep: record.rollouts for record in run.sleeps}
    training = {row.rollouts: row.rollout_cost for row in checkpoint_rows(run, costs)}
    played: dict[int, list[EpisodeRow]] = {}
    for row in sorted(run.episodes, key=lambda row: row.episode):
        if row.phase == "test":
            played.setdefault(row.checkpoint, []).append(row)
    for point, rows in sorted(played.items()):
        if len(rows) < config.run.test_episodes:
            continue
        policy = rows[0].policy
        slept = costs.episodes.get(sleep_key(policy), Line()).useful_usd if policy in rollouts else 0.0
        yield (
            point,
            Checkpoint(
                rollouts=point,
                played=len(rows),
                tested=list(_tested(rows, costs)),
                sleep_usd=slept / rollouts[policy] if policy in rollouts else 0.0,
                training_usd=training[point],
                library=statistics[policy],
            ),
        )


def _tested(rows: Iterable[EpisodeRow], costs: RunCosts) -> Iterator[Tested]:
    for row in rows:
        if row.score is not None:
            line = costs.episodes.get(row.episode, Line())
            values = {name: float(of(row, line)) for name, of in METRICS.items()} | {"actions": row.actions}
            usd = values.pop("usd")
            number = row.episode.rpartition("/")[2]
            yield Tested(number, row.task, values if costs.unpriced else values | {"cost_usd": usd})


def _conversations(record: SleepRecord) -> Iterator[list[Turn]]:
    """Of its agents, and of the episodes that it played again."""
    yield from (agent.turns for agent in record.agents)
    yield from (again.turns for again in record.attempts)


def _sleeps(run: RunData, costs: RunCosts) -> Iterator[Slept]:
    for record in run.sleeps:
        line = costs.episodes.get(sleep_key(record.sleep), Line())
        refused = sum(edit.error is not None for edit in record.edits)
        yield Slept(
            sleep=record.sleep,
            rollouts=record.rollouts,
            llm_calls=sum(len(turns) for turns in _conversations(record)),
            accepted=len(record.edits) - refused,
            refused=refused,
            uncached=line.useful.computed,
            cached=line.useful.cached,
            output=line.useful.reasoning + line.useful.action,
            cost_usd=None if costs.unpriced else line.useful_usd,
            seconds=record.seconds,
            prefix=record.prefix,
            error=record.error,
        )
