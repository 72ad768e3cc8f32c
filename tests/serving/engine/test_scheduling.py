"""Which scheduler a server gets, and what it reads from its environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from serving.engine import api_server
from serving.engine.api_server import with_known_scheduler
from serving.engine.scheduling import scheduler_options
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config

CONVOY, SYNC = (f"serving.engine.convoy.{name}" for name in ("ConvoyScheduler", "SyncConvoyScheduler"))


def with_flags(name: str, **flags: Any) -> ModelConfig:
    """The model config with more flags; `_` stands for a dash."""
    return load_model_config(name).with_flags({flag.replace("_", "-"): flags[flag] for flag in flags})


@pytest.mark.parametrize(
    ("model_config", "steps", "scheduler"),
    [
        (with_flags("qwen3.5-27b"), 12, CONVOY),
        (with_flags("qwen3.5-27b", max_num_seqs=23), 0, None),
        (with_flags("qwen3.5-27b", async_scheduling=False), 12, SYNC),
        (replace(with_flags("qwen3.5-27b"), convoy_steps=0), 0, None),
        (replace(with_flags("qwen3.5-27b"), convoy_steps=5), 5, CONVOY),
        (with_flags("qwen3.5-27b", scheduler_cls="their.Own"), 0, None),
        (with_flags("tiny-hybrid"), 12, SYNC),
        (with_flags("qwen3-8b"), 0, None),
        (with_flags("tiny-random"), 0, None),
    ],
)
def test_hybrid_models_on_gpus_get_convoys_unless_the_model_config_says_otherwise(
    model_config: ModelConfig, steps: int, scheduler: str | None
) -> None:
    arguments, settings = scheduler_options(model_config, None)
    assert model_config.convoys == steps
    assert arguments == (["--scheduler-cls", scheduler] if scheduler else [])
    assert settings == (
        {"SPEEDRUNNER_CONVOY_STEPS": str(steps), "SPEEDRUNNER_STEP_LOG": ""} if scheduler else {}
    )


def test_a_server_that_logs_its_steps_has_our_scheduler_and_reports_cuda_graphs(tmp_path: Path) -> None:
    model_config, log = load_model_config("tiny-random"), tmp_path / "steps"
    arguments, settings = scheduler_options(model_config, log)
    assert arguments == ["--scheduler-cls", SYNC, "--cudagraph-metrics"]
    assert settings == {"SPEEDRUNNER_CONVOY_STEPS": "0", "SPEEDRUNNER_STEP_LOG": str(log)}


def test_the_user_s_scheduler_takes_the_place_of_ours_even_for_a_log(tmp_path: Path) -> None:
    model_config = with_flags("qwen3.5-27b", scheduler_cls="their.Own")
    assert scheduler_options(model_config, tmp_path / "steps") == ([], {})


@pytest.mark.parametrize("error", [ImportError("no AsyncScheduler"), AttributeError("no PauseState")])
def test_a_version_of_vllm_that_lacks_what_convoys_import_gets_its_own_scheduler_and_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(api_server, "import_module", fail)
    assert with_known_scheduler(["--a", "--scheduler-cls", CONVOY, "--b"]) == ["--a", "--b"]
    assert capsys.readouterr().err == (
        f"SpeedRunner: with this version of vLLM requests start at once: {error}\n"
    )
    theirs = ["--scheduler-cls", "their.Own"]
    assert with_known_scheduler(theirs) == theirs
