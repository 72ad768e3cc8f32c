"""An invented sweep: runs of ReAct and of SpeedRunner, with random scores and numbers of turns."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from tests.speedrunner.results.small_runs import Calls, SmallRun, skill

MODEL = "gpt-5.4-mini"
BABYAI: Mapping[str, object] = {"name": "babyai"}
FAMILY_3: Mapping[str, object] = {"name": "scienceworld", "family": 3, "num_dists": None}


def write_sweep(
    folder: Path,
    seeds: int,
    envs: Sequence[Mapping[str, object]] = (BABYAI,),
    methods: Sequence[str] = ("react", "speedrunner"),
) -> list[Path]:
    """Write runs below a folder, with three test episodes after 0, 2 and 4 rollouts; return where they are.

    Each sleep of SpeedRunner adds two skills.
    """
    paths = []
    for env, method, seed in product(envs, methods, range(seeds)):
        family = f"-family{env['family']}" if "family" in env else ""
        paths.append(folder / f"{env['name']}{family}-{method}-{MODEL}-seed{seed}")
        config = {"run": {"seed": seed, "test_episodes": 3}, "env": env, "method": {"name": method}}
        _play(SmallRun(paths[-1], model={"name": MODEL}, **config), method != "react", paths[-1].name)
    return paths


def _play(run: SmallRun, learns: bool, name: str) -> None:
    drawn = random.Random(name)

    def calls(version: int) -> Calls:
        return [skill(f"skill_{drawn.randrange(2 * version)}") if version else None] * drawn.randrange(1, 9)

    for version in range(3):
        policy = version * learns
        if version == 0 or learns:
            run.policy(version, {f"skill_{number}": "return walk()" for number in range(2 * version)})
        scores = [round(drawn.random() * (0.5 + policy / 6), 3) for _ in range(3)]
        run.test(2 * version, policy, scores, calls(policy))
        if learns and version < 2:
            run.train(version, calls(version), calls(version))
            run.sleep(version + 1)
