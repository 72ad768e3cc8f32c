"""What every benchmark and probe prints: text for people, one object for machines, an exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from speedrunner.bench.measurement import (
    MeasuredFigure,
    MeasuredTable,
    Measurement,
    as_json,
    as_text,
)
from speedrunner.cli.command import AsJson, show_measured
from tests.golden_tables import Golden, table


@dataclass
class Lamp:
    name: str
    lit: bool
    watts: float | None


LAMPS = [Lamp("hall", True, 3.14159), Lamp("cellar", False, None)]
COLUMNS = ("name", "lit", "watts:.2f")


@pytest.mark.parametrize(
    ("figure", "met", "verdict"),
    [
        (MeasuredFigure("a", 0.5), None, ""),
        (MeasuredFigure("a", 0.5, at_least=0.5), True, "at least 0.5: met"),
        (MeasuredFigure("a", 0.49, at_least=0.5, form=".0%"), False, "at least 50%: MISSED"),
        (MeasuredFigure("a", 9, at_most=8), False, "at most 8: MISSED"),
        (MeasuredFigure("a", 9, at_least=8, at_most=9), True, "at least 8 and at most 9: met"),
        (MeasuredFigure("a", None, at_least=0), False, "at least 0: MISSED"),
    ],
)
def test_a_figure_is_met_within_its_bounds(figure: MeasuredFigure, met: bool | None, verdict: str) -> None:
    assert (figure.met, figure.verdict) == (met, verdict)


def test_people_see_title_tables_figures_and_notes(golden: Golden) -> None:
    figures = [MeasuredFigure("lamps that are lit", 1, at_least=2), MeasuredFigure("watts, in all", 31415.9)]
    tables = [MeasuredTable("lamps", LAMPS, COLUMNS, "In rooms:")]
    turned = MeasuredTable("lamps", [{"name": "hall", "lit": True}, LAMPS[1]], ("name", "lit"), turned=True)
    empty = MeasuredTable("cellars", [], title="In cellars:")
    texts = {
        "all": as_text(Measurement("A house", figures, [*tables, empty], notes=["All at night."])),
        "a turned table": as_text(Measurement("Lamps", tables=[turned])),
    }
    golden("measurements.txt", table(texts))


def test_machines_get_facts_tables_and_figures() -> None:
    figures = [MeasuredFigure("lit", 1, at_least=2), MeasuredFigure("watts", None)]
    tables = [MeasuredTable("lamps", LAMPS, COLUMNS), MeasuredTable("", LAMPS, COLUMNS)]
    assert json.loads(as_json(Measurement("Lamps", figures, tables, {"house": 7}))) == {
        "house": 7,
        "lamps": [
            {"name": "hall", "lit": True, "watts": 3.14159},
            {"name": "cellar", "lit": False, "watts": None},
        ],
        "figures": [
            {"name": "lit", "value": 1, "at_least": 2, "met": False},
            {"name": "watts", "value": None, "met": None},
        ],
        "met": False,
    }


@pytest.mark.parametrize(("value", "status"), [(1, 1), (2, 0), (None, 0)])
def test_a_missed_target_is_the_exit_status(value: float | None, status: int) -> None:
    async def measure(say: Callable[[str], None]) -> Measurement:
        say("counting")
        return Measurement("Lamps", [MeasuredFigure("lit", value, at_least=2 if value else None)])

    app = typer.Typer()

    @app.command()
    def lamps(as_json: AsJson = False) -> None:
        show_measured(measure, as_json)

    for arguments in ([], ["--json"]):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == status
    assert json.loads(done.stdout)["met"] is (None if value is None else value == 2)
