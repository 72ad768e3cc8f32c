"""Runs of a few episodes whose figures can be worked out by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from envs import Outcome, Task
from serving.model_configs import load_model_config
from serving.usage import Prices, Usage
from speedrunner.library.definition import HEADER
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import (
    AgentRecord,
    CallNode,
    Message,
    Policy,
    PrefixChange,
    Skill,
    SleepRecord,
    Termination,
    Trajectory,
    Turn,
)
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.results.ledgers import row
from tests.speedrunner.run_samples import process

PRICES = Prices(uncached=1.0, cached=0.1, output=10.0)
TURN = Usage(100, 60, 20, 5)
SLEEP = Usage(1000, 0, 100)
SLEEP_USD = (1000 * 1.0 + 100 * 10.0) / 1e6

Calls = Sequence[CallNode | None]
"""What each turn of an episode ran."""


def skill(name: str, actions: int = 3, error: str | None = None, *below: CallNode) -> CallNode:
    return CallNode(name, "skill", {}, None, error, actions, calls=list(below))


class SmallRun:
    """Writes a run; sleeps follow every two rollouts, evaluations every two as well."""

    def __init__(self, path: Path, **config: Mapping[str, object]) -> None:
        self.path = path
        content: dict[str, dict[str, object]] = {
            "run": {"dir": str(path), "rollouts": 4, "sleep_every": 2, "eval_every": 2, "test_episodes": 2},
            "env": {"name": "babyai", "num_dists": 0, "description": "paper"},
            "method": {"name": "speedrunner"},
            "model": {"name": "tiny-random"},
        }
        for section, changes in config.items():
            content.setdefault(section, {}).update(changes)
        content["env"] = {key: value for key, value in content["env"].items() if value is not None}
        self._played = 0
        self.instructions: dict[int, str] = {}
        """By the index of the task, where the first prompt has one."""
        with RunDirectory.open_for_writing(path) as run:
            run.write_config(yaml.safe_dump(content))
            run.append_process(process(load_model_config("tiny-random"), **{"tiny-random": PRICES}))

    def policy(
        self,
        version: int,
        sources: Mapping[str, str],
        created: Mapping[str, int] = {},
        private: Collection[str] = (),
    ) -> None:
        """A version of the library: bodies by name; private ones begin with an underscore, or are named."""
        functions = [f'def {name}() -> str:\n    """Go."""\n    {body}' for name, body in sources.items()]
        module = "\n\n\n".join([HEADER, *functions]) + "\n" if functions else ""
        skills = tuple(
            Skill(
                name=name,
                public=name[0] != "_" and name not in private,
                created=created.get(name, version),
                edited=version,
            )
            for name in sources
        )
        with RunDirectory.open_for_writing(self.path) as run:
            run.write_policy(Policy(version=version, module=module, skills=skills))

    def train(self, policy: int, *episodes: Calls) -> None:
        """Rollouts of one batch, each of as many turns as there are calls."""
        for calls in episodes:
            self._play("train", f"train/{self._played:04d}", policy, 2 * policy, calls, 1.0)
            self._played += 1

    def test(self, point: int, policy: int, scores: Sequence[float | None], calls: Calls = (None,)) -> None:
        """One evaluation; `None` for an episode that broke."""
        for number, score in enumerate(scores):
            self._play("test", f"test/{point:04d}/{number:04d}", policy, point, calls, score)

    def sleep(self, number: int, prefix: PrefixChange | None = None, requests: int = 1, **own: str) -> None:
        """A sleep of at most one request, with its error if there is one."""
        turns = [Turn([], "", SLEEP, 1.0)] * requests
        agents = [AgentRecord("inducer", turns, Termination.SUBMITTED)]
        fields: dict[str, Any] = {"rollouts": 2, "attempt": 1, "edits": [], "seconds": 1.0, "prefix": prefix}
        labels = {"phase": "sleep", "policy": f"{number - 1}", "episode": f"sleep/{number:04d}"}
        with RunDirectory.open_for_writing(self.path) as run:
            for _ in turns:
                run.append_request(row(1.0, SLEEP, "inducer", attempt="1", **labels))
            run.write_sleep(SleepRecord(sleep=number, agents=agents, **fields, **own))

    def _play(self, phase: str, key: str, policy: int, point: int, calls: Calls, score: float | None) -> None:
        task = Task("babyai", "go", int(key[-4:]) + 100 * (phase == "test"))
        text = self.instructions.get(task.index)
        first = [Message("user", f"Your task: {text}\n\nA door is ahead.")] if text else []
        played = Trajectory(
            episode=key,
            task=task,
            policy=policy,
            attempt=1,
            turns=[
                Turn(first if n == 0 else [], "", TURN, 1.0, executed=call) for n, call in enumerate(calls)
            ],
            termination=Termination.ENGINE_ERROR if score is None else Termination.SUBMITTED,
            outcome=None if score is None else Outcome(score, score == 1, {}),
        )
        labels = {"phase": phase, "policy": str(policy), "episode": key, "attempt": "1"}
        with RunDirectory.open_for_writing(self.path) as run:
            for _ in calls:
                run.append_request(row(1.0, TURN, **labels))
            if phase == "train":
                run.append_trajectory("train", policy, played)
                run.append_episode(summarize_episode(played, "train", point))
            else:
                run.append_trajectory("test", point, played)
                run.append_episode(summarize_episode(played, "test", point))


def learnt(path: Path, **config: Mapping[str, object]) -> SmallRun:
    """Two batches, two sleeps: the first writes `home` and `_step`, the second edits one, drops the other."""
    run = SmallRun(path, **config)
    run.policy(0, {})
    run.test(0, 0, [0.0, 0.5])
    run.train(0, [None, None], [None, None])
    run.sleep(1, PrefixChange(before=1000, after=1080, common=900))
    run.policy(1, {"home": "return _step()", "_step": "return walk()"})
    run.test(2, 1, [0.5, 1.0], [skill("home", 4)])
    inner = skill("_step", 1, "ValueError: no")
    run.train(1, [skill("home", 6, None, inner), None], [skill("home", 0, "ValueError: no", inner)])
    run.sleep(2)
    run.policy(2, {"home": "return walk()"}, {"home": 1})
    run.test(4, 2, [1.0, 1.0], [skill("home", 4)])
    return run


def one_sleep(
    path: Path,
    before: Sequence[float | None] = (0.5,),
    after: Sequence[float | None] = (1.0,),
    **config: Mapping[str, object],
) -> SmallRun:
    """A batch and the sleep that writes `home`, with the scores of test episodes before and after it."""
    run = SmallRun(path, **config)
    run.policy(0, {})
    run.test(0, 0, before)
    run.train(0, [None, None], [None, None])
    run.sleep(1)
    run.policy(1, {"home": "return 'home'"})
    run.test(2, 1, after, [skill("home", 4)])
    return run
