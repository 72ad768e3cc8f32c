"""What docs/deviations.csv says about this program is so: each row has a check, an expression on the code."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest
from msgspec.structs import astuple

import envs
from serving.model_configs import CHECKOUT, load_model_config
from speedrunner.config.compose import compose
from speedrunner.config.grid import grid_of
from speedrunner.config.schema import Config
from speedrunner.runs.plan import plan_run

with (CHECKOUT / "docs/deviations.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))


def read(file: str) -> str:
    return (CHECKOUT / file).read_text(encoding="utf-8")


def at(place: str) -> Any:
    module, name = place.split(":")
    return attrgetter(name)(import_module(module))


@cache
def runs(experiment: str) -> list[Config]:
    return [run.config for run in grid_of([f"experiment={experiment}"]).runs()]


def experiments() -> list[Config]:
    """The runs of all of the paper's experiments."""
    names = ("main", "models", "ablations", "interpreter", "zombies", "shift", "replay", "truncation")
    return [config for name in names for config in runs(name)]


NAMES = {
    "at": at,
    "env": cache(envs.make),
    "experiments": experiments,
    "model": load_model_config,
    "names": lambda folder: sorted(path.name for path in (CHECKOUT / folder).iterdir()),
    "paper": cache(lambda *settings: compose([*settings, "preset=paper"])),
    "prices": lambda name: astuple(load_model_config(name).prices),
    "plan": lambda *settings, trains=True: plan_run(
        envs.make("babyai").splits(), compose([*settings, "preset=paper"]).run, trains=trains
    ),
    "read": read,
    "runs": runs,
    "tested": lambda file, test: bool(re.search(rf"^ *(async )?def {test}\(", read(file), re.MULTILINE)),
}
"""What a check can use; `tested` says that a test of this name has the rest of the check."""


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['place']} {row['paper'][:40]}" for row in ROWS])
def test_a_row_is_so(row: dict[str, str]) -> None:
    assert (row["ours"] == "same") == (not row["effect"])
    assert eval(row["check"], dict(NAMES)) is True


def test_the_page_shows_rows_of_the_table() -> None:
    page = read("docs/methods.md").partition("## Deviations from the paper")[2]
    shown = re.findall(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", page, re.MULTILINE)[1:]
    assert len(shown) >= 10
    assert {*shown} <= {(row["place"], row["paper"], row["ours"], row["effect"]) for row in ROWS}
