"""A claim of the paper as data: comparisons of means, each with the range in which the claim places it."""

from __future__ import annotations

from typing import Literal

import msgspec


class Mean(msgspec.Struct, frozen=True):
    """The mean of a measure over the test episodes of a checkpoint, or the measure of its library.

    Attributes:
        env: `scienceworld`: the mean of the comparison over both families.
    """

    measure: str
    method: str
    env: str
    at: Literal["first", "last"] = "last"


class ClaimComparison(msgspec.Struct, frozen=True):
    """A mean, its difference from another or its ratio to another, and the claimed range.

    Attributes:
        low, high: the range; `None`: unbounded.
        model: the model of the claim; empty: each played model.
    """

    form: Literal["value", "difference", "ratio"]
    own: Mean
    other: Mean | None = None
    low: float | None = None
    high: float | None = None
    model: str = ""

    @property
    def text(self) -> str:
        """Return the comparison in words."""
        own, other = self.own, self.other
        words = [f"{own.measure} of {own.method} on {own.env}"]
        if other is not None:
            words.append("minus" if self.form == "difference" else "divided by")
            words.append("that" if other.method == own.method else other.method)
            words += [f"on {other.env}"] * (other.env != own.env) + ["at the start"] * (other.at == "first")
        words += [f"with {self.model}"] * bool(self.model)
        return " ".join([*words, f"is {self.range}"])

    @property
    def range(self) -> str:
        """Return the range in words."""
        if self.low is not None and self.high is not None:
            return f"between {self.low:.3g} and {self.high:.3g}"
        return f"above {self.low:.3g}" if self.low is not None else f"below {self.high:.3g}"


class Claim(msgspec.Struct, frozen=True):
    """One claim of the paper.

    Attributes:
        text: the claim in our words.
        place: section of the paper, and figure or table.
        experiment: the experiment with its runs.
        paper: the paper's value, as printed; empty if it prints none.
        groups: comparisons. A group is supported if all of its comparisons are, and contradicted if one is.
        needed: number of groups that must be supported; `None`: all.
    """

    name: str
    text: str
    place: str
    experiment: str
    paper: str
    groups: tuple[tuple[ClaimComparison, ...], ...]
    needed: int | None = None
