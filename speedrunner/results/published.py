"""What the paper states: its numbers (`paper.csv`, with table and section) and its claims (`claims.csv`).

Each row of `claims.csv` is a comparison of a claim: a measure of condition A (`ENV METHOD`, at the last
checkpoint unless `first` or `second` follows; `METHOD@MODEL` for another model), its difference from
condition B or its ratio to B, and the range in which the claim places it. Rows of one group must all be
supported; a claim needs all of its groups, or `needed` of them. Rows after a claim's first have its name
alone. Ranges are ours where the paper gives no number: "near-perfect" is above 95%, "ties" is within 5
points, as are changes of scores in points, "about" is within 20% of the paper's value, "does not fall" is
above 90%, "nearly two orders of magnitude" is above 30 times, and a truncated library "meaningfully exceeds"
no library by more than one achievement.
"""

from __future__ import annotations

import csv
from functools import cache
from itertools import groupby
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from speedrunner.results.conditions import FAMILIES

if TYPE_CHECKING:
    from numpy import ndarray

WITHOUT, WITH = "score_without_library", "score_with_whole_library"
"""Scores before training and at the last checkpoint, of the seeds with a truncated library."""


POINTS = {"first": 0, "second": 1, "": -1}
"""Places of the checkpoints of a side."""


class Published(msgspec.Struct, frozen=True):
    """One number of the paper.

    Attributes:
        table: the label of its table or figure.
        place: the section.
        experiment: the experiment that measures the number here.
        quantity: a column of `RunResult.checkpoints`, `combat_percent`, `WITHOUT` or `WITH`.
        value: `None` if the paper shows it only in a figure.
    """

    table: str
    place: str
    experiment: str
    env: str
    method: str
    model: str
    quantity: str
    value: float | None = None
    sd: float | None = None


class Claim(msgspec.Struct, frozen=True):
    """A comparison of a claim. A claim's first comparison describes the claim as well.

    Attributes:
        experiment: the experiment with its runs.
        paper: the paper's value, as printed; empty if it prints none.
        needed: number of groups that must be supported; 0: all.
        model: the model that the claim is about; empty: each played model.
        a, b: the conditions. `scienceworld` is the mean of the comparison over both families.
        low, high: the range; `None`: unbounded.
    """

    claim: str
    place: str = ""
    experiment: str = ""
    paper: str = ""
    needed: int = 0
    text: str = ""
    group: str = ""
    model: str = ""
    measure: str = ""
    relation: Literal["value", "difference", "ratio"] = "value"
    a: str = ""
    b: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Return the ends of the range."""
        return -inf if self.low is None else self.low, inf if self.high is None else self.high

    def contains(self, value: float | None) -> bool:
        """Return whether a value is known and within the range."""
        return value is not None and self.ends[0] < value < self.ends[1]

    @property
    def is_usd(self) -> bool:
        """Return whether it compares costs."""
        return "usd" in self.measure

    def statistic(self, means: ndarray) -> ndarray:
        """Return the compared value from the means of A and B in each environment, of shape (columns, n)."""
        count = 2 if self.b else 1
        own, other = means[::count], means[count - 1 :: count]
        if self.relation != "value":
            own = own - other if self.relation == "difference" else own / other
        averaged: ndarray = own.mean(axis=0)
        return averaged

    @property
    def pairs(self) -> list[tuple[tuple[str, str, int], ...]]:
        """Return A, and B if there is one, in each environment: its name, the method, and the place of the
        checkpoint."""
        words = (side.split() for side in (self.a, self.b) if side)
        sides = [
            [(each, method, POINTS["".join(at)]) for each in list_envs(env)] for env, method, *at in words
        ]
        return [*zip(*sides, strict=True)]

    @property
    def counted_as(self) -> str:
        """Return what it is called in counts: a comparison of USD by both cache rules is one comparison."""
        return self.comparison.replace("_cold", "", 1)

    @property
    def range(self) -> str:
        """Return the range in words."""
        if self.low is not None and self.high is not None:
            return f"between {self.low:.3g} and {self.high:.3g}"
        return f"above {self.low:.3g}" if self.low is not None else f"below {self.high:.3g}"

    @property
    def comparison(self) -> str:
        """Return the comparison in words."""
        words = {"value": "", "difference": f" minus {self.b}", "ratio": f" divided by {self.b}"}
        model = f" with {self.model}" if self.model else ""
        return f"{self.measure} of {self.a}{words[self.relation]}{model} is {self.range}"


def _read(name: str) -> list[dict[str, str]]:
    """Return the rows of a file without empty cells."""
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        return [{column: text for column, text in row.items() if text} for row in csv.DictReader(file)]


@cache
def list_published() -> list[Published]:
    """Return the paper's numbers, in the order of its tables."""
    return msgspec.convert(_read("paper.csv"), list[Published], strict=False)


@cache
def list_claims() -> list[list[Claim]]:
    """Return the comparisons of each claim, in the order of the paper's sections. One of USD is followed by
    the same by the cache rule `cold`."""
    rows = []
    for row in msgspec.convert(_read("claims.csv"), list[Claim], strict=False):
        cold = msgspec.structs.replace(row, measure=f"{row.measure}_cold", text="", needed=0)
        rows += [row, cold] if row.is_usd else [row]
    return [list(own) for _, own in groupby(rows, key=lambda row: row.claim)]


def published_values(row: Claim) -> str:
    """Return what the paper's tables print for both sides of a comparison at the last checkpoint, with
    deviations: `8.7 ± 2.1 and 1.7 ± 0.6`; empty unless all is printed."""
    measure = {"combat": "combat_percent"}.get(row.measure, row.measure)
    texts = []
    for side in filter(None, (row.a, row.b)):
        sought = (*side.split(), measure)
        fitting = [each for each in list_published() if (each.env, each.method, each.quantity) == sought]
        printed = next((each for each in fitting if each.value is not None), None)
        if printed is None:
            return ""
        texts.append(f"{printed.value:g}" + (f" ± {printed.sd:g}" if printed.sd is not None else ""))
    return " and ".join(texts)


def list_envs(env: str) -> tuple[str, ...]:
    """Return the environments over which the paper averages one of its names of environments."""
    return FAMILIES if env == "scienceworld" else (env,)
