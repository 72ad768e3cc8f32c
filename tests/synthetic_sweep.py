"""An invented sweep on disk, of the paper's size by default, to measure what its tables take.

    python -m tests.synthetic_sweep OUT [--seeds 3] [--rollouts 200] [--model qwen3.5-27b]

Every record is of the kind that a run writes, and each episode has as many requests as a real one (about 100
in ScienceWorld, 200 in Crafter); the texts are short and say nothing.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from envs import Outcome, Task
from serving.meter import LedgerRow
from serving.model_configs import load_model_config
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.config.compose import compose
from speedrunner.config.names import run_name
from speedrunner.config.schema import Config, to_yaml
from speedrunner.library.definition import HEADER
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.policies import PolicyStore
from speedrunner.store.records import (
    AgentRecord,
    CallNode,
    Edit,
    Message,
    Policy,
    PrefixChange,
    Skill,
    SleepRecord,
    Termination,
    Trajectory,
    Turn,
)
from speedrunner.store.stored_run import State
from tests.speedrunner.run_samples import process

METHODS = ("react", "opo", "asi", "speedrunner")
MAIN = (
    *((("env=crafter",), f"method={method}") for method in (*METHODS, "voyager")),
    *((("env=scienceworld", f"env.family={n}"), f"method={method}") for n in (3, 4) for method in METHODS),
    *((("env=babyai",), f"method={method}") for method in METHODS),
)
"""The paper's main comparison."""

REQUESTS = {"crafter": 200, "scienceworld": 100, "babyai": 15}
"""Of one episode, on average."""

WRITTEN = {"asi": 3, "speedrunner": 2, "voyager": 50}
"""Functions that each sleep adds; SpeedRunner changes as many."""


@dataclass
class Invented:
    """One run in the making."""

    folder: Path
    config: Config
    model: str
    requests: float
    random: random.Random
    clock: float = 1.7e9
    ledger: list[bytes] = field(default_factory=list)
    episodes: list[bytes] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    skills: dict[str, Skill] = field(default_factory=dict)

    def write(self) -> None:
        """All of its files."""
        run = self.config.run
        for name in ("trajectories", "evaluations", "sleeps", "policies"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "config.yaml").write_text(to_yaml(self.config))
        model_config = load_model_config(self.config.model.name)
        _write(self.folder / "processes.jsonl", [msgspec.json.encode(process(model_config))])
        learns = self.config.method.name != "react"
        for point in range(0, run.rollouts + 1, run.eval_every):
            number = point // run.sleep_every if learns else 0
            if point == 0:
                self._save_policy(0)
            for batch in (
                range((point - run.eval_every) // run.sleep_every, number) if point and learns else ()
            ):
                keys = range(batch * run.sleep_every, (batch + 1) * run.sleep_every)
                self._play(
                    f"trajectories/batch_{batch:04d}", [f"train/{key:04d}" for key in keys], batch, keys[0]
                )
                self._sleep(batch + 1)
            keys_ = [f"test/{point:04d}/{key:04d}" for key in range(run.test_episodes)]
            self._play(f"evaluations/{point:04d}", keys_, number, point)
        _write(self.folder / "requests.jsonl", self.ledger)
        _write(self.folder / "episodes.jsonl", self.episodes)
        (self.folder / "state.json").write_bytes(msgspec.json.encode(State(secret="s")))

    def _play(self, file: str, keys: Sequence[str], policy: int, point: int) -> None:
        lines = []
        for key in keys:
            phase = "train" if key.startswith("train") else "test"
            usages = [self._request(phase, policy, key) for _ in range(self._count())]
            score = round(self.random.random() * (0.5 + policy / 60), 3)
            played = Trajectory(
                episode=key,
                task=Task(self.config.env.name, "invented", int(key[-4:]) + 1000 * (phase == "test")),
                policy=policy,
                attempt=1,
                turns=[self._turn(usage) for usage in usages],
                termination=self.random.choice(
                    (Termination.SUBMITTED, Termination.CALL_LIMIT, Termination.FAILURE)
                ),
                outcome=Outcome(score, score > 0.9, {}),
                seconds=60.0,
            )
            lines.append(msgspec.json.encode(played))
            self.episodes.append(msgspec.json.encode(summarize_episode(played, phase, point)))
        _write(self.folder / f"{file}.jsonl", lines)

    def _count(self) -> int:
        return max(1, round(self.random.gauss(self.requests, self.requests / 5)))

    def _request(self, phase: str, policy: int, key: str, role: str = "actor") -> Usage:
        """One row of the ledger, and what it took."""
        prompt = self.random.randrange(2000, 20000)
        usage = Usage(prompt, prompt - self.random.randrange(100, 900), self.random.randrange(20, 300), 10)
        self.clock += 1.0
        row = LedgerRow(
            request=f"r{len(self.ledger)}", retry=0, time=self.clock, model=self.model, status="ok",
            labels={"phase": phase, "policy": str(policy), "episode": key, "attempt": "1", "role": role},
            wasted=False, usage=usage, seconds=0.9, cacheable=prompt - 100,
        )  # fmt: skip
        self.ledger.append(msgspec.json.encode(row))
        return usage

    def _turn(self, usage: Usage) -> Turn:
        moves = [
            CallNode("move", "primitive", {"to": "north"}, "You see a tree.", actions=1) for _ in range(3)
        ]
        public = [name for name, skill in self.skills.items() if skill.public]
        if public and self.random.random() < 0.3:
            name = self.random.choice(public)
            error = "ValueError: no way" if self.random.random() < 0.05 else None
            executed = CallNode(name, "skill", {"steps": 3}, "done", error, 3, calls=moves)
        else:
            name, executed = "move", moves[0]
        seen = Message("tool", "You see a tree 3 steps north and a stone 2 steps east. " * 4)
        return Turn(
            [seen], "I shall go on.", usage, 0.9, call=ToolCall(name, {"steps": 3}), executed=executed
        )

    def _sleep(self, number: int) -> None:
        """The sleep's requests and record, and the policy that it made."""
        usages = [self._request("sleep", number - 1, f"sleep/{number:04d}", "inducer") for _ in range(20)]
        before = self._chars()
        made = WRITTEN.get(self.config.method.name, 0)
        for _ in range(made):
            self._define(f"skill_{len(self.sources)}", number, created=number)
        for name in (
            self.random.sample(sorted(self.skills), made) if self.config.method.name == "speedrunner" else ()
        ):
            self._define(name, number, created=self.skills[name].created)
        turns = [Turn([], "", usage, 0.9) for usage in usages]
        edits = [Edit("write", name) for name, skill in self.skills.items() if skill.edited == number]
        lengths = (1500 + before // 4, 1500 + self._chars() // 4)
        record = SleepRecord(
            sleep=number, rollouts=self.config.run.sleep_every, attempt=1, edits=edits, seconds=60.0,
            agents=[AgentRecord("inducer", turns, Termination.SUBMITTED)],
            prefix=PrefixChange(*lengths, common=min(lengths) - 200),
        )  # fmt: skip
        _write(self.folder / f"sleeps/{number:04d}.json", [msgspec.json.encode(record)])
        self._save_policy(number)

    def _chars(self) -> int:
        return sum(100 for skill in self.skills.values() if skill.public)

    def _define(self, name: str, sleep: int, created: int) -> None:
        """Write or rewrite a function that calls up to two of the ones before it."""
        older = [each for each in self.sources if int(each[6:]) < int(name[6:])]
        called = self.random.sample(older, min(len(older), self.random.randrange(3)))
        lines = [
            f"def {name}(steps: int = {sleep}) -> str:",
            f'    """Walk {sleep} steps. Returns what is seen."""',
        ]
        for turn in range(self.random.randrange(1, 8)):
            lines += [
                f"    if steps > {turn} and '{self.random.choice(('tree', 'zombie'))}' in move('north'):"
            ]
            lines += [f"        move('east')  # {turn}"]
        lines += [f"    {each}(steps)" for each in called]
        self.sources[name] = "\n".join([*lines, "    return move('north')"])
        self.skills[name] = Skill(name=name, public=len(self.skills) % 3 > 0, created=created, edited=sleep)

    def _save_policy(self, version: int) -> None:
        module = "\n\n\n".join([HEADER, *self.sources.values()]) + "\n" if self.sources else ""
        policy = Policy(version=version, module=module, skills=tuple(self.skills.values()))
        PolicyStore(self.folder / "policies").save(policy)


def write_sweep(
    out: Path,
    overrides: Sequence[str] = (),
    *,
    settings: Sequence[tuple[Sequence[str], str]] = MAIN,
    seeds: int = 3,
    model: str = "qwen3.5-27b",
    shrink: float = 1.0,
) -> Iterator[Path]:
    """Write runs below a folder, one after the other; yields where each is.

    Args:
        overrides: of the configuration of all of them.
        settings: environment and method of each.
        shrink: of the requests of an episode, this share.
    """
    for env, method in settings:
        for seed in range(seeds):
            given = [*env, method, f"model={model}", f"run.seed={seed}", *overrides]
            config = compose(given)
            folder = out / run_name(config)
            config = config.with_run(dir=str(folder))
            requests = REQUESTS[config.env.name] * shrink
            drawn = random.Random(run_name(config))
            Invented(folder, config, load_model_config(model).name, requests, drawn).write()
            yield folder


def _write(path: Path, lines: Sequence[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Invent a sweep of the paper's size.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--model", default="qwen3.5-27b")
    given = parser.parse_args()
    overrides = [f"run.rollouts={given.rollouts}"]
    for folder in write_sweep(given.out, overrides, seeds=given.seeds, model=given.model):
        print(folder, flush=True)


if __name__ == "__main__":
    main()
