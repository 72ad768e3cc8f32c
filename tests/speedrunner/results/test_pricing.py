"""Price lists by name, put on a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.meter import LedgerRow
from serving.model_config import ModelConfig
from serving.usage import Prices, Usage
from speedrunner.config.schema import InvalidConfig
from speedrunner.results.pricing import price_book
from speedrunner.store.records import Policy
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.run_samples import process


def run(folder: Path, model_config: ModelConfig) -> RunData:
    with RunDirectory.open_for_writing(folder / "run") as directory:
        directory.write_config("run: {}\n")
        directory.append_process(process(model_config))
        directory.write_policy(Policy(version=0))
        directory.append_request(
            LedgerRow(
                request="r",
                retry=0,
                time=1.0,
                labels={"role": "actor"},
                model=model_config.name,
                status="ok",
                wasted=False,
                usage=Usage(1, 0, 1),
                seconds=1.0,
            )
        )
    return load(folder / "run")


def test_another_list_holds_for_every_model(tiny_model_config: ModelConfig, tmp_path: Path) -> None:
    data = run(tmp_path, tiny_model_config)
    book = price_book(data, "gemini-3-flash-preview")
    assert book.models["tiny-random"] == Prices(uncached=0.35, cached=0.0875, output=1.05)
    assert price_book(data, "zero").models["tiny-random"] == Prices(0, 0, 0)


def test_an_unknown_list_is_one_line(tiny_model_config: ModelConfig, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"prices=gpt-5.4-mni is unknown \(did you mean gpt-5.4-mini"):
        price_book(run(tmp_path, tiny_model_config), "gpt-5.4-mni")
