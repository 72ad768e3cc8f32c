"""Sets of hidden skills that an attribution evaluates, and Shapley values from the results.

A coalition is the set of skills that the actor sees. Its value is the mean result of a task. A skill's
Shapley value is its mean contribution when skills are added to an empty library one by one, over all orders.
It is exact if all coalitions were played. Otherwise, it is the mean over a fixed sample of orders.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import comb, sqrt
from statistics import fmean, stdev
from typing import Literal, get_args

import msgspec

Design = Literal["each", "shapley"]
"""`each`: the whole library, the library without each skill, and the empty one. `shapley`: the coalitions for
Shapley values."""

DESIGNS: tuple[Design, ...] = get_args(Design)

MOST_SKILLS = 12
"""Maximum number of skills for Shapley values."""

ORDERS = 10
"""Number of sampled orders: half of them are random, the others are their reverses, which reduces the
sampling error."""

SEED = 0
"""Fixed, so that runs and their analysis use the same orders."""

Coalition = frozenset[str]


class Share(msgspec.Struct, frozen=True):
    """A skill's Shapley value.

    Attributes:
        error: its standard error from sampling orders; 0 if it is exact.
        orders: number of orders; `None` if all coalitions were played.
    """

    value: float
    error: float
    orders: int | None


def hidden_sets(design: Design, skills: Sequence[str]) -> list[list[str]]:
    """Return the sets of hidden skills to evaluate: first the empty set, last all skills.

    Raises:
        ValueError: there are no skills, or too many for Shapley values.
    """
    if not skills:
        raise ValueError("the policy has no public skill")
    if design == "each":
        seen = [*combinations(skills, len(skills) - 1), ()]
    elif len(skills) > MOST_SKILLS:
        raise ValueError(
            f"Shapley values are for at most {MOST_SKILLS} skills, and the policy has {len(skills)}:"
            " experiment=attribution leaves out one at a time"
        )
    elif is_exact(skills):
        seen = [one for size in range(len(skills) - 1, -1, -1) for one in combinations(skills, size)]
    else:
        seen = [order[:size] for order in sample_orders(skills) for size in range(1, len(order))] + [()]
    found = dict.fromkeys(frozenset(one) for one in ((*skills,), *seen))
    return [sorted(set(skills) - one) for one in found]


def is_exact(skills: Sequence[str]) -> bool:
    """Return whether all coalitions take at most as many runs as the sampled orders."""
    return (1 << len(skills)) - 2 <= ORDERS * (len(skills) - 1)


def sample_orders(skills: Sequence[str]) -> list[tuple[str, ...]]:
    """Return `ORDERS` orders of the skills; each random order is followed by its reverse."""
    drawn = random.Random(SEED)
    orders: list[tuple[str, ...]] = []
    for _ in range(ORDERS // 2):
        order = drawn.sample(sorted(skills), len(skills))
        orders += [(*order,), (*reversed(order),)]
    return orders


def shapley_values(
    skills: Sequence[str], played: set[Coalition], value: Callable[[Coalition], float]
) -> dict[str, Share]:
    """Return each skill's Shapley value; empty if too few coalitions were played.

    The values sum to the value of the whole library minus that of the empty one.

    Args:
        played: the coalitions with a value.
        value: the value of a played coalition.
    """
    if is_exact(skills) and all(one in played for one in _subsets(skills)):
        return {skill: Share(_exact(skill, skills, value), 0.0, None) for skill in skills}
    pairs = usable_orders(skills, played)
    if not pairs:
        return {}
    found = {}
    for skill in skills:
        means = [sum(_added(skill, order, value) for order in pair) / 2 for pair in pairs]
        error = stdev(means) / sqrt(len(means)) if len(means) > 1 else float("nan")
        found[skill] = Share(fmean(means), error, 2 * len(pairs))
    return found


def usable_orders(skills: Sequence[str], played: set[Coalition]) -> list[tuple[tuple[str, ...], ...]]:
    """Return the sampled pairs of an order and its reverse with all coalitions played."""
    orders = sample_orders(skills)
    pairs = [*zip(orders[::2], orders[1::2], strict=True)]
    return [
        pair
        for pair in pairs
        if all(frozenset(order[:size]) in played for order in pair for size in range(len(order) + 1))
    ]


def _subsets(skills: Sequence[str]) -> Iterator[Coalition]:
    for size in range(len(skills) + 1):
        yield from map(frozenset, combinations(skills, size))


def _exact(skill: str, skills: Sequence[str], value: Callable[[Coalition], float]) -> float:
    others = [each for each in skills if each != skill]
    return sum(
        (value(one | {skill}) - value(one)) / (len(skills) * comb(len(others), len(one)))
        for one in _subsets(others)
    )


def _added(skill: str, order: tuple[str, ...], value: Callable[[Coalition], float]) -> float:
    before = order[: order.index(skill)]
    return value(frozenset((*before, skill))) - value(frozenset(before))
