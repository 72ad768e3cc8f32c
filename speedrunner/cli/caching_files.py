"""The table and the figure of `speedrunner bench caching`."""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from speedrunner.bench.caching import SAVINGS, BlockCost, compare_savings
from speedrunner.pages.plots import LOOKS, Panel, ReportFigure, Series, draw_files
from speedrunner.results.inference import Estimate
from speedrunner.results.writing import table_files, table_of


def caching_files(costs: Sequence[BlockCost]) -> dict[str, bytes]:
    """Return the table of savings of measured blocks and its figure, by path; no figure without a saving.

    The figure shows the share of `seconds` that a `warm` cache saves. It has a row for each environment and a
    panel for each number in flight. A band opens from the mean at rollout 0 to the interval of the change,
    which is paired within a run.
    """
    savings = list(compare_savings([cost for cost in costs if not cost.disturbed]))
    table = table_of("caching_savings", "", pandas.DataFrame(savings, columns=SAVINGS))
    treatments = {str(treatment): treatment for treatment in LOOKS}
    rows: dict[str, dict[int, Panel]] = {}
    for one in (one for one in savings if (one["cost"], one["cache"]) == ("seconds", "warm")):
        method, count = one["method"], one["runs"]
        low, high = (None if one[end] is None else one["before"] + one[end] for end in ("low", "high"))
        means = Estimate(one["before"], None, None, count), Estimate(one["after"], low, high, count)
        series = Series(method, [0, one["rollouts"]], means, treatments.get(method), one["by_run"])
        title = f"{one['environment']}, {one['in_flight']} in flight"
        panel = Panel(title, "training rollouts", "share of time saved", [])
        rows.setdefault(one["environment"], {}).setdefault(one["in_flight"], panel).series.append(series)
    figure = ReportFigure(table.name, "", "", [[*panels.values()] for panels in rows.values()])
    return table_files([table]) | (draw_files(figure) if rows else {})
