"""What the paper states: its numbers (`paper.csv`, with table and section) and its claims (`claims.csv`).

Each row of `claims.csv` is a comparison of a claim: a measure of condition A (`ENV METHOD`, at the last
checkpoint unless `first` follows), its difference from condition B or its ratio to B, and the range in which
the claim places it. Rows of one group must all be supported; a claim needs all of its groups, or `needed` of
them. Rows after a claim's first have its name alone. Ranges are ours where the paper gives no number:
"near-perfect" is above 95%, "ties" is within 5 points, "about" is within 20% of the paper's value, "nearly
two orders of magnitude" is above 30 times, and a truncated library "meaningfully exceeds" no library by more
than one achievement.
"""

from __future__ import annotations

import csv
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Literal

import msgspec

from speedrunner.results.conditions import FAMILIES

WITHOUT, WITH = "score_without_library", "score_with_whole_library"
"""Scores before training and at the last checkpoint, of the seeds with a truncated library."""


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
    def sides(self) -> list[tuple[tuple[str, ...], str, int]]:
        """Return environments, method and place of the checkpoint of A, and of B if there is one."""
        words = (side.split() for side in (self.a, self.b) if side)
        return [(list_envs(env), method, 0 if at else -1) for env, method, *at in words]

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


def list_published() -> list[Published]:
    """Return the paper's numbers, in the order of its tables."""
    return msgspec.convert(_read("paper.csv"), list[Published], strict=False)


@cache
def list_claims() -> list[list[Claim]]:
    """Return the comparisons of each claim, in the order of the paper's sections."""
    rows = msgspec.convert(_read("claims.csv"), list[Claim], strict=False)
    return [list(own) for _, own in groupby(rows, key=lambda row: row.claim)]


def list_envs(env: str) -> tuple[str, ...]:
    """Return the environments over which the paper averages one of its names of environments."""
    return FAMILIES if env == "scienceworld" else (env,)
