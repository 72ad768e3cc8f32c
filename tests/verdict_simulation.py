"""Error rate and power of verdicts on claims, from invented seeds and episodes.

    python -m tests.verdict_simulation

An episode's value is the true difference plus a seed's deviation (0.1) plus its own (0.5), about those of the
paired differences of scores. Each seed has 30 test episodes. With several wordings, each seed is played with
all of them, and a wording deviates by 0.1 too.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy

from speedrunner.results.claims import Claim, JudgedRow, judge_samples

ABOVE_0 = Claim("above", measure="score", relation="difference", a="x a", b="x b", low=0.0)
TIE = Claim("tie", measure="score", relation="difference", a="x a", b="x b", low=-0.1, high=0.1)
EPISODES, SEED_SD, WORDING_SD, EPISODE_SD = 30, 0.1, 0.1, 0.5


AT_THE_END = ((ABOVE_0, 0.0, 1), (TIE, 0.1, 1), (ABOVE_0, 0.0, 4), (TIE, 0.1, 4))
"""Claims, true values at the end of their ranges, and wordings."""


def simulate(claim: Claim, effect: float, seeds: int, cases: int, wordings: int = 1) -> Counter[str]:
    """Count the verdicts on a claim whose true value is `effect`; always the same for the same arguments."""
    random = numpy.random.default_rng([seeds, cases])
    found: Counter[str] = Counter()
    for _ in range(cases):
        samples = {}
        shifts = random.normal(0, WORDING_SD, wordings) if wordings > 1 else [0.0]
        deviations = dict[int, float]()
        for seed, (wording, shift) in product(range(seeds), enumerate(shifts)):
            other = random.random(EPISODES)
            if seed not in deviations:
                deviations[seed] = random.normal(0, SEED_SD)
            own = other + effect + shift + deviations[seed] + random.normal(0, EPISODE_SD, EPISODES)
            samples[wording, seed] = [numpy.stack([own, other], axis=1)]
        found[judge_samples(JudgedRow(claim, "", True, wordings, seeds), samples).verdict] += 1
    return found


def main() -> None:
    """Print the tables of docs/results.md."""
    cases = 1000
    for claim, effect, wordings in AT_THE_END:
        found = dict(simulate(claim, effect, 3, cases, wordings))
        print(f"{claim.claim}, true value {effect:g}, 3 seeds, {wordings} wordings: {found}")
    print("seeds", *(effects := (0.05, 0.1, 0.2, 0.3)))
    for seeds in (3, 5, 10):
        shares = (simulate(ABOVE_0, effect, seeds, cases)["supported"] / cases for effect in effects)
        print(seeds, *(f"{share:.0%}" for share in shares))


if __name__ == "__main__":
    main()
