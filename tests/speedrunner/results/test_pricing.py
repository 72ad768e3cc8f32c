"""Price lists by name, put on a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serving.meter import LedgerRow
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.usage import Prices, Usage
from speedrunner.config.schema import InvalidConfig
from speedrunner.results.pricing import price_book
from speedrunner.store.records import Policy
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.run_samples import process


def run(folder: Path, model_config: ModelConfig, inducer: str | None = None, **prices: Prices) -> RunData:
    others = load_model_config(inducer) if inducer else model_config
    with RunDirectory.open_for_writing(folder / "run") as directory:
        directory.write_config("run: {}\n")
        directory.append_process(process(model_config, others, **prices))
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


@pytest.fixture
def gpu_model_config(tiny_model_config: ModelConfig) -> ModelConfig:
    return msgspec.structs.replace(tiny_model_config, gpus=1, recipe=None)


def test_another_list_holds_for_every_model(tiny_model_config: ModelConfig, tmp_path: Path) -> None:
    data = run(tmp_path, tiny_model_config)
    book = price_book(data, "gemini-3-flash-preview")
    assert book.models["tiny-random"] == Prices(uncached=0.35, cached=0.0875, output=1.05)
    assert price_book(data, "zero").models["tiny-random"] == Prices(0, 0, 0)


def test_gpu_hours_count_the_gpus_of_all_replicas(gpu_model_config: ModelConfig, tmp_path: Path) -> None:
    book = price_book(run(tmp_path, msgspec.structs.replace(gpu_model_config, replicas=4)), "gpu-hours", 2.5)
    assert "tiny-random" not in book.models
    assert book.by_time("tiny-random", 1800.0) == pytest.approx(5.0)


def test_a_hosted_inducer_keeps_its_price_per_token(gpu_model_config: ModelConfig, tmp_path: Path) -> None:
    book = price_book(run(tmp_path, gpu_model_config, inducer="gpt-5.4-mini"), "gpu-hours", 2.5)
    assert book.by_time("tiny-random", 3600.0) == pytest.approx(2.5)
    assert book.models["gpt-5.4-mini"] == Prices(0.75, 0.075, 4.5)
    assert book.by_time("gpt-5.4-mini", 3600.0) is None


def test_a_run_that_changed_its_gpus_has_no_gpu_hours(gpu_model_config: ModelConfig, tmp_path: Path) -> None:
    data = run(tmp_path, gpu_model_config)
    with RunDirectory.open_for_writing(data.path) as directory:
        directory.append_process(process(msgspec.structs.replace(gpu_model_config, replicas=4)))
    with pytest.raises(InvalidConfig, match="was played on different numbers of GPUs: it has no GPU-hours"):
        price_book(load(data.path), "gpu-hours", 2.5)


@pytest.mark.parametrize(
    ("prices", "gpu_hour", "problem"),
    [
        (
            "gpt-5.4-mni",
            None,
            r"prices=gpt-5.4-mni is unknown \(did you mean gpt-5.4-mini\?\)",
        ),
        ("gpu-hours", None, "--prices gpu-hours and --gpu-hour USD need each other"),
        ("zero", 2.0, "--prices gpu-hours and --gpu-hour USD need each other"),
        (None, 2.0, "--prices gpu-hours and --gpu-hour USD need each other"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    tiny_model_config: ModelConfig, tmp_path: Path, prices: str | None, gpu_hour: float | None, problem: str
) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        price_book(run(tmp_path, tiny_model_config), prices, gpu_hour)
