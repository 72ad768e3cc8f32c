"""All tables of a few small runs: their columns, order and figures are those of `tests/golden/tables.txt`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from speedrunner.pages.collected import collect
from speedrunner.results.writing import Table, csv_text
from tests.speedrunner.results.small_runs import SmallRun, learnt, skill


def write_runs(folder: Path) -> None:
    """Write two seeds of two methods, and evaluations of a policy whole, in part and uncached.

    These are seven runs.
    """
    for seed in (0, 1):
        learnt(folder / f"ours{seed}", run={"seed": seed})
        react = SmallRun(folder / f"react{seed}", run={"seed": seed}, method={"name": "react"})
        react.policy(0, {})
        for point in (0, 2, 4):
            react.test(point, 0, [0.25 * seed, 0.5], [None] * (4 + seed))
            if point < 4:
                react.train(0, [None], [None])
    evaluate(folder, "whole", [1.0, 0.5])
    evaluate(folder, "hidden", [0.5, 0.25], library={"hide": ["home"]})
    evaluate(folder, "uncached", [1.0, 1.0], model={"prefix_caching": False})


def evaluate(folder: Path, name: str, scores: list[float], **config: Mapping[str, object]) -> None:
    run = SmallRun(folder / name, run={"start_from": str(folder / "ours0"), "rollouts": 0}, **config)
    run.policy(0, {"home": "return walk()"})
    run.test(0, 0, scores, [None if "library" in config else skill("home", 4)] * (1 + len(config)))


def shorten(table: Table) -> str:
    """Return a table's name, columns, first and last row, with four digits."""
    rows = [
        tuple(float(f"{cell:.4g}") if isinstance(cell, float) else cell for cell in row)
        for row in (*table.rows[:1], *table.rows[1:][-1:])
    ]
    return f"{table.name}, {len(table.rows)} rows\n" + csv_text(msgspec.structs.replace(table, rows=rows))


def test_tables_have_these_columns_and_figures(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    write_runs(tmp_path)
    found = collect([tmp_path], None, lambda _: None)
    assert found.problems == []
    text = "".join(map(shorten, found.tables))
    golden("tables.txt", text.replace(str(tmp_path), "RUNS"))
