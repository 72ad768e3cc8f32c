"""Runs of the paper's size with invented records, to measure what their analysis takes.

Each episode has as many requests as a real one; the texts are short and say nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import msgspec

from envs import Outcome, Task
from serving.meter import LedgerRow
from serving.model_configs import load_model_config
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.config.compose import compose
from speedrunner.config.names import run_name
from speedrunner.config.schema import to_mapping
from speedrunner.library.definition import HEADER
from speedrunner.plain.plain_yaml import write_yaml
from speedrunner.store import records
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.policies import PolicyStore
from speedrunner.store.records import CallNode, Skill, Termination, Turn
from speedrunner.store.stored_run import State
from tests.speedrunner.run_samples import process

METHODS = ("react", "opo", "asi", "speedrunner")
PLACES = (["env=scienceworld", "env.family=3"], ["env=scienceworld", "env.family=4"], ["env=babyai"])
CONDITIONS = [*product([["env=crafter"]], (*METHODS, "voyager")), *product(PLACES, METHODS)]
"""The paper's main comparison."""

REQUESTS = {"crafter": 200, "scienceworld": 100, "babyai": 15}
"""Requests of an episode, on average."""

WRITTEN = {"asi": 3, "speedrunner": 2, "voyager": 50}
"""Functions that each sleep adds."""

MODEL = "qwen3.5-27b"
RUN = ("seed", "rollouts", "sleep_every", "eval_every", "test_episodes")
"""Stored keys of the configuration: few, so that several commits can read them."""


def write_runs(out: Path, runs: int, rollouts: int) -> Iterator[Path]:
    """Write runs below a folder and yield their folders; the paper has 51 runs of 200 rollouts."""
    for seed, (env, method) in list(product(range(runs), CONDITIONS))[:runs]:
        given = [*env, f"method={method}", f"model={MODEL}", f"run.seed={seed}", f"run.rollouts={rollouts}"]
        yield _Invented(out, given).write()


class _Invented:
    """One run in the making."""

    def __init__(self, out: Path, overrides: Sequence[str]) -> None:
        self.config = compose(overrides)
        self.folder = out / run_name(self.config)
        self.random = random.Random(self.folder.name)
        self.files: dict[str, list[bytes]] = {"requests.jsonl": [], "episodes.jsonl": []}
        self.sources: dict[str, str] = {}

    def write(self) -> Path:
        run, method = self.config.run, self.config.method.name
        self.folder.mkdir(parents=True)
        stored = {"run": {"dir": str(self.folder), **{name: getattr(run, name) for name in RUN}}}
        stored |= {"env": to_mapping(self.config)["env"]}
        stored |= {"method": {"name": method}, "model": {"name": MODEL}}
        (self.folder / "config.yaml").write_text(write_yaml(stored))
        self._add("processes.jsonl", process(load_model_config(MODEL)))
        self._add("state.json", State(secret="s"))
        self._save_policy(0)
        for point in range(0, run.rollouts + 1, run.eval_every):
            sleeps = point // run.sleep_every if method != "react" else 0
            for batch in range(max(0, point - run.eval_every) // run.sleep_every, sleeps):
                for number in range(batch * run.sleep_every, (batch + 1) * run.sleep_every):
                    self._play(f"trajectories/batch_{batch:04d}.jsonl", f"train/{number:04d}", batch, point)
                self._sleep(batch + 1)
            for number in range(run.test_episodes):
                self._play(f"evaluations/{point:04d}.jsonl", f"test/{point:04d}/{number:04d}", sleeps, point)
        for name, lines in self.files.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
        return self.folder

    def _add(self, file: str, record: msgspec.Struct) -> None:
        self.files.setdefault(file, []).append(msgspec.json.encode(record))

    def _play(self, file: str, key: str, policy: int, point: int) -> None:
        phase, mean = key.partition("/")[0], REQUESTS[self.config.env.name]
        count = max(1, round(self.random.gauss(mean, mean / 5)))
        score = round(self.random.random() * (0.5 + policy / 60), 3)
        played = records.Trajectory(
            episode=key, policy=policy, attempt=1, seconds=60.0, outcome=Outcome(score, score > 0.9, {}),
            task=Task(self.config.env.name, "invented", int(key[-4:]) + 1000 * (phase == "test")),
            turns=[self._turn(self._request(phase, policy, key)) for _ in range(count)],
            termination=self.random.choice((Termination.SUBMITTED, Termination.CALL_LIMIT)),
        )  # fmt: skip
        self._add(file, played)
        self._add("episodes.jsonl", summarize_episode(played, phase, point))

    def _request(self, phase: str, policy: int, key: str, role: str = "actor") -> Usage:
        """Add a row of the ledger, and return its tokens."""
        ledger, prompt = self.files["requests.jsonl"], self.random.randrange(2000, 20000)
        usage = Usage(prompt, prompt - self.random.randrange(100, 900), self.random.randrange(20, 300), 10)
        labels = {"phase": phase, "policy": f"{policy}", "episode": key, "attempt": "1", "role": role}
        row = LedgerRow(
            request=f"r{len(ledger)}", retry=0, time=1.7e9 + len(ledger), labels=labels, model=MODEL,
            status="ok", wasted=False, usage=usage, seconds=0.9, cacheable=prompt - 100,
        )  # fmt: skip
        ledger.append(msgspec.json.encode(row))
        return usage

    def _turn(self, usage: Usage) -> Turn:
        executed = CallNode("move", "primitive", {"to": "north"}, "You see a tree.", actions=1)
        if self.sources and self.random.random() < 0.3:
            name, below = self.random.choice([*self.sources]), [executed] * 3
            error = "ValueError: no way" if self.random.random() < 0.05 else None
            executed = CallNode(name, "skill", {"steps": 3}, "done", error, 3, calls=below)
        seen = records.Message("tool", "You see a tree 3 steps north and a stone 2 steps east. " * 4)
        call = ToolCall(executed.name, {"steps": 3})
        return Turn([seen], "I shall go on.", usage, 0.9, call=call, executed=executed)

    def _sleep(self, number: int) -> None:
        for _ in range(WRITTEN.get(self.config.method.name, 0)):
            lines = [f"def skill_{len(self.sources)}() -> str:", f'    """Walk {number} steps."""']
            lines += ["    if 'tree' in move('north'):", "        move('east')"] * self.random.randrange(1, 8)
            lines += [f"    {each}()" for each in self.random.sample([*self.sources], bool(self.sources))]
            self.sources[f"skill_{len(self.sources)}"] = "\n".join([*lines, "    return move('north')"])
        key = f"sleep/{number:04d}"
        turns = [Turn([], "", self._request("sleep", number - 1, key, "inducer"), 0.9) for _ in range(20)]
        agents = [records.AgentRecord("inducer", turns, Termination.SUBMITTED)]
        fields = {"rollouts": 10, "attempt": 1, "edits": [], "seconds": 60.0, "agents": agents}
        self._add(f"sleeps/{number:04d}.json", records.SleepRecord(sleep=number, **fields))
        self._save_policy(number)

    def _save_policy(self, version: int) -> None:
        module = "\n\n\n".join([HEADER, *self.sources.values()]) + "\n" if self.sources else ""
        skills = [Skill(name=name, public=True, created=1, edited=1) for name in self.sources]
        policy = records.Policy(version=version, module=module, skills=tuple(skills))
        PolicyStore(self.folder / "policies").save(policy)
