"""The paper's tables with the measured numbers added."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from speedrunner.results.conditions import DAGGER, Spread, mean_sd
from speedrunner.results.paper import PaperComparison
from speedrunner.results.writing import Cell, Table, latex


def paper_tables(rows: Sequence[PaperComparison]) -> list[Table]:
    """Return the paper's tables with the measured numbers."""
    return [_paper(label, list(own)) for label, own in groupby(rows, key=lambda row: row.paper.table)]


def _paper(label: str, rows: list[PaperComparison]) -> Table:
    columns = (
        *("place", "experiment", "env", "method", "quantity", "paper_model", "paper"),
        *("paper_std", "model", "ours", "ours_std", "seeds", "rollouts", "difference", "flag", "missing"),
    )
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        paper, ours = row.paper, row.ours
        difference = None if ours is None or paper.value is None else ours.mean - paper.value
        cells.append(
            (
                *(paper.place, paper.experiment, paper.env, paper.method, paper.quantity, paper.model),
                *(paper.value, paper.sd, row.model, *mean_sd(ours)),
                *(ours.seeds if ours else 0, row.rollouts, difference, row.flag, row.missing),
            )
        )
    text = (
        f"The paper's {label}, as PAPER / OURS: means and standard deviations over seeds at the last"
        f" checkpoint.{DAGGER}"
    )
    name = label.partition(":")[2] or label
    return Table(name, text, columns, cells, shown=_pivot(rows))


def _pivot(rows: list[PaperComparison]) -> tuple[list[str], list[list[str]]]:
    """Return a table in the paper's layout: a row for each method, a column for each quantity."""
    quantities = list(dict.fromkeys(row.paper.quantity for row in rows))
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        key = row.model, row.paper.env, row.paper.method
        lines.setdefault(key, {})[row.paper.quantity] = _stroke(row)
    heads = [*map(latex, ("model", "env", "method", *quantities))]
    return heads, [
        [*map(latex, key), *(own.get(each, "--") for each in quantities)] for key, own in lines.items()
    ]


def _stroke(row: PaperComparison) -> str:
    paper = Spread(row.paper.value, row.paper.sd, 0) if row.paper.value is not None else None
    flag = r"$^\dagger$" if row.flag else ""
    return f"{_with_sd(paper)} / {_with_sd(row.ours)}{flag}"


def _with_sd(found: Spread | None) -> str:
    if found is None or found.sd is None:
        return latex(found.mean if found else None)
    return f"{latex(found.mean)[:-1]}\\pm{latex(found.sd)[1:]}"
