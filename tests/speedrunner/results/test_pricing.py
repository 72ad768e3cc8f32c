"""Price lists by name, put on a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import astuple

from serving.meter import LedgerRow
from serving.model_config import ModelConfig
from serving.usage import Prices, Usage
from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig, to_yaml
from speedrunner.results.pricing import price_book, price_caveats, price_list
from speedrunner.store.records import Policy
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.results.ledgers import measured_list
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


def test_a_measured_list_has_its_hardware_in_its_title_(
    tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    data = run(tmp_path, tiny_model_config)
    book = price_book(data, str(measured_list(tmp_path)))
    assert astuple(book.models["tiny-random"]) == pytest.approx((0.2, 0.01, 2.0))
    about = "measured-here (CPU seconds of tiny-random on a processor with no engine, 8 in flight, "
    assert book.title.startswith(about)
    assert price_caveats(book, data.processes) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hardware": "NVIDIA H200"}, "a processor, not NVIDIA H200"),
        ({"model": "tiny-hybrid"}, "tiny-random, not tiny-hybrid"),
        ({"engine": "vllm 0.33.0"}, "no engine, not vllm 0.33.0"),
    ],
)
def test_a_list_that_was_measured_elsewhere_is_told(
    tiny_model_config: ModelConfig, tmp_path: Path, changes: dict[str, str], told: str
) -> None:
    data = run(tmp_path, tiny_model_config)
    (caveat,) = price_caveats(price_book(data, str(measured_list(tmp_path, **changes))), data.processes)
    assert caveat.endswith(f"measured elsewhere (measured-here): played with {told}")


def test_a_run_that_was_played_at_a_measured_list_keeps_its_intervals(
    tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    own = price_list(str(measured_list(tmp_path))).whole
    with RunDirectory.open_for_writing(tmp_path / "run") as directory:
        directory.write_config(to_yaml(compose([f"prices={tmp_path / 'measured-here.yaml'}"])))
        directory.append_process(process(tiny_model_config, **{"tiny-random": own}))
    book = price_book(load(tmp_path / "run"))
    assert (book.models["tiny-random"], book.measured is not None) == (own, True)


def test_a_list_that_is_damaged_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"prices\.measured\.usd_per_hour must be .*more than 0"):
        price_list(str(measured_list(tmp_path, usd_per_hour=0.0)))
    (tmp_path / "part.yaml").write_text("uncached: 1\n")
    with pytest.raises(InvalidConfig, match=r"part\.yaml: a price list has uncached, cached and output"):
        price_list(str(tmp_path / "part.yaml"))
    (tmp_path / "twice.yaml").write_text("uncached: 1\nuncached: 2\n")
    with pytest.raises(InvalidConfig, match="`uncached` is set twice"):
        price_list(str(tmp_path / "twice.yaml"))
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(InvalidConfig, match="it is a folder, a pipe or a device"):
        price_list(str(tmp_path / "pipe.yaml"))
    with pytest.raises(InvalidConfig, match=r"nothing\.yaml cannot be read"):
        price_list(str(tmp_path / "nothing.yaml"))
