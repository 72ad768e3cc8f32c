"""Error rate and power of verdicts on claims, from invented seeds, tasks and episodes.

    python -m tests.verdict_simulation

The value of an episode is a paired difference of scores: the true difference plus deviations of its task, its
seed and its own. For lognormal tokens it is their ratio. All seeds play the same 30 tasks, as in BabyAI and
ScienceWorld.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy

from speedrunner.results.claims import Claim, JudgedRow, judge_samples
from speedrunner.results.inference import Samples

ABOVE_0 = Claim("above 0", measure="score", relation="difference", a="x a", b="x b", low=0.0)
TIE = Claim("within 0.1 of 0", measure="score", relation="difference", a="x a", b="x b", low=-0.1, high=0.1)
FEWER = Claim("ratio below 1", measure="output", relation="ratio", a="x a", b="x b", high=1.0)
TASKS = 30
FALL = 0.5


class World(NamedTuple):
    """What values vary with: standard deviations of tasks, seeds and episodes.

    Attributes:
        collapses: share of the seeds that fall by `FALL`; the others are better, and the mean is the same.
        is_lognormal: whether values are tokens, of whose logarithms these are the deviations.
    """

    tasks: float
    seeds: float
    episodes: float
    collapses: float = 0.0
    is_lognormal: bool = False


WORLDS = {
    "hard and easy": World(tasks=0.4, seeds=0.05, episodes=0.3),
    "even": World(tasks=0.0, seeds=0.1, episodes=0.5),
    "one library in ten collapses": World(tasks=0.0, seeds=0.05, episodes=0.3, collapses=0.1),
    "lognormal tokens": World(tasks=0.3, seeds=0.2, episodes=0.8, is_lognormal=True),
}
HARD_AND_EASY, EVEN, COLLAPSING, LOGNORMAL = WORLDS.values()


def invent(random: numpy.random.Generator, world: World, effect: float, seeds: int) -> Samples:
    """Draw the values of some seeds whose true value is `effect`."""
    of_task = random.normal(0, world.tasks, TASKS)
    falls = random.random(seeds) < world.collapses
    of_seed = random.normal(0, world.seeds, seeds) + FALL * (world.collapses - falls)
    variance = world.tasks**2 + world.seeds**2 + world.episodes**2
    runs = {}
    for seed in range(seeds):
        shift = of_task + of_seed[seed] + random.normal(0, world.episodes, TASKS)
        other = random.random(TASKS)
        own = other + effect + shift
        if world.is_lognormal:
            other = numpy.exp(random.normal(0, world.episodes, TASKS) - world.episodes**2 / 2)
            own = effect * numpy.exp(shift - variance / 2)
        runs[seed] = [numpy.stack([own, other], axis=1)]
    return Samples(runs, share_tasks=True)


def simulate(
    claim: Claim, world: World, effect: float, *looks: int, cases: int = 1000, nested: bool = False
) -> Counter[str]:
    """Count the verdicts on a claim whose true value is `effect`; always the same for the same arguments.

    Args:
        looks: numbers of seeds at which the claim is judged; the first verdict that decides it counts.
        nested: judge as if each seed had tasks of its own.
    """
    random = numpy.random.default_rng([*looks, cases])
    verdicts: Counter[str] = Counter()
    for _ in range(cases):
        samples = invent(random, world, effect, max(looks))
        found = (_judge(claim, samples, seeds, nested) for seeds in looks)
        verdicts[next((verdict for verdict in found if verdict != "undecided"), "undecided")] += 1
    return verdicts


def _judge(claim: Claim, samples: Samples, seeds: int, nested: bool) -> str:
    first = {seed: own for seed, own in samples.runs.items() if seed < seeds}
    return judge_samples(JudgedRow(claim, "", True, seeds), Samples(first, not nested)).verdict


AT_THE_END = (
    *((ABOVE_0, "hard and easy", 0.0), (TIE, "hard and easy", 0.1)),
    *((ABOVE_0, "even", 0.0), (TIE, "even", 0.1)),
    *((ABOVE_0, "one library in ten collapses", 0.0), (FEWER, "lognormal tokens", 1.0)),
)
"""Claims, worlds, and true values at the end of the claimed ranges."""


def main() -> None:
    """Print the tables of docs/results.md."""
    print("supported / contradicted in 1,000 cases: 3 seeds, 5, 10; looks at 3, 5 and 8")
    for claim, name, effect in AT_THE_END:
        found = [simulate(claim, WORLDS[name], effect, *looks) for looks in ((3,), (5,), (10,), (3, 5, 8))]
        print(claim.claim, name, *(f"{each['supported']}/{each['contradicted']}" for each in found), sep="; ")
    nested = [simulate(ABOVE_0, HARD_AND_EASY, 0.0, seeds, nested=True) for seeds in (3, 5, 10)]
    print("as nested", *(1000 - each["undecided"] for each in nested), sep="; ")
    print("supported, seeds", *(effects := (0.05, 0.1, 0.2, 0.3)))
    for seeds in (3, 5, 10):
        shares = (simulate(ABOVE_0, EVEN, effect, seeds)["supported"] / 1000 for effect in effects)
        print(seeds, *(f"{share:.0%}" for share in shares))
    for seeds in (3, 10, 20):
        found = (simulate(TIE, WORLDS[name], 0.0, seeds) for name in ("hard and easy", "even"))
        print("tie, true value 0", seeds, *(f"{each['supported'] / 1000:.1%}" for each in found))


if __name__ == "__main__":
    main()
