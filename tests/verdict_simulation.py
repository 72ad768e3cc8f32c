"""Error rate and power of verdicts on claims, from invented seeds, tasks and episodes.

    python -m tests.verdict_simulation

The value of an episode is a paired difference of scores: the true difference plus deviations of its task, its
seed, its wording and its own. All seeds play the same 30 tasks, as in BabyAI and ScienceWorld.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import NamedTuple

import numpy

from speedrunner.results.claims import Claim, JudgedRow, judge_samples
from speedrunner.results.inference import Samples

ABOVE_0 = Claim("above 0", measure="score", relation="difference", a="x a", b="x b", low=0.0)
TIE = Claim("within 0.1 of 0", measure="score", relation="difference", a="x a", b="x b", low=-0.1, high=0.1)
TASKS = 30


class World(NamedTuple):
    """What values vary with: standard deviations of tasks, seeds, episodes and wordings."""

    tasks: float
    seeds: float
    episodes: float
    wordings: float = 0.0


HARD_AND_EASY = World(tasks=0.4, seeds=0.05, episodes=0.3)
"""Tasks differ much more than seeds, as in environments with hard and easy tasks."""

EVEN = World(tasks=0.0, seeds=0.1, episodes=0.5)
"""Tasks are alike, and seeds differ."""


def invent(random: numpy.random.Generator, world: World, effect: float, seeds: int, wordings: int) -> Samples:
    """Draw the values of some seeds whose true value is `effect`."""
    of_task = random.normal(0, world.tasks, TASKS)
    of_wording = random.normal(0, world.wordings, wordings)
    of_seed = random.normal(0, world.seeds, seeds)
    runs = {}
    for wording, seed in product(range(wordings), range(seeds)):
        shift = of_task + of_wording[wording] + of_seed[seed] + random.normal(0, world.episodes, TASKS)
        other = random.random(TASKS)
        own = other + effect + shift
        runs[wording, seed] = [numpy.stack([own, other], axis=1)]
    return Samples(runs, share_tasks=True)


def simulate(
    claim: Claim,
    world: World,
    effect: float,
    seeds: int,
    cases: int,
    *,
    wordings: int = 1,
    nested: bool = False,
) -> Counter[str]:
    """Count the verdicts on a claim whose true value is `effect`; always the same for the same arguments.

    Args:
        nested: judge as if each seed had tasks of its own.
    """
    random = numpy.random.default_rng([seeds, cases])
    verdicts: Counter[str] = Counter()
    for _ in range(cases):
        samples = invent(random, world, effect, seeds, wordings)
        verdicts[_judge(claim, samples._replace(share_tasks=not nested))] += 1
    return verdicts


def _judge(claim: Claim, samples: Samples) -> str:
    seeds = len({seed for _, seed in samples.runs})
    return judge_samples(JudgedRow(claim, "", True, len(samples.runs) // seeds, seeds), samples).verdict


AT_THE_END = (
    *((ABOVE_0, HARD_AND_EASY, 0.0, 1), (TIE, HARD_AND_EASY, 0.1, 1)),
    *((ABOVE_0, EVEN, 0.0, 1), (TIE, EVEN, 0.1, 1)),
    *((ABOVE_0, EVEN._replace(wordings=0.1), 0.0, 4), (TIE, EVEN._replace(wordings=0.1), 0.1, 4)),
)
"""Claims, deviations, true values at the end of the claimed ranges, and wordings."""


def main() -> None:
    """Print the tables of docs/results.md."""
    cases, fewer = 1000, 300
    for seeds in (3, 5, 10):
        before, now = (
            simulate(ABOVE_0, HARD_AND_EASY, 0.0, seeds, cases, nested=nested) for nested in (True, False)
        )
        print(
            f"{seeds} seeds, hard and easy tasks, decided: as nested {cases - before['undecided']}", end=", "
        )
        print(f"crossed {cases - now['undecided']}")
    for claim, world, effect, wordings in AT_THE_END:
        verdicts = dict(simulate(claim, world, effect, 3, cases, wordings=wordings))
        print(f"{claim.claim}, {world}, true value {effect:g}, 3 seeds, {wordings} wordings: {verdicts}")
    print("supported, seeds", *(effects := (0.05, 0.1, 0.2, 0.3)))
    for seeds in (3, 5, 10):
        shares = (simulate(ABOVE_0, EVEN, effect, seeds, fewer)["supported"] / fewer for effect in effects)
        print(seeds, *(f"{share:.0%}" for share in shares))


if __name__ == "__main__":
    main()
