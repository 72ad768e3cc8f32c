from __future__ import annotations

from pathlib import Path

from serving.model_config import ServerOptions
from serving.model_configs import adapt, load_model_config
from tests.serving.model_config_samples import write


def test_flags_stand_on_the_command_line_as_the_engine_reads_them() -> None:
    flags = {"enforce-eager": True, "enable-prefix-caching": False, "block-size": 32, "config": {"a": "b"}}
    assert ServerOptions(flags).arguments() == [
        *["--enforce-eager", "--no-enable-prefix-caching"],
        *["--block-size", "32", "--config", '{"a":"b"}'],
    ]


def test_a_model_config_says_what_its_cache_keeps(tmp_path: Path) -> None:
    assert load_model_config(write(tmp_path)).match_unit is None
    dense = load_model_config(write(tmp_path, server__flags={"block-size": 32}))
    assert (dense.cache, dense.match_unit) == ("attention", 32)
    hybrid = load_model_config(
        write(tmp_path, cache="hybrid", server__flags={"prefix-match-unit": 16, "block-size": 640})
    )
    assert hybrid.match_unit == 16


def test_replicas_and_load_format_stand_on_the_command_line(tmp_path: Path) -> None:
    model_config = load_model_config(write(tmp_path, shape="s", server__flags={"seed": 1}))
    flags = model_config.server.arguments()
    assert flags[-2:] == ["--seed", "1"]
    assert model_config.arguments() == adapt(model_config, 1, None).arguments() == flags
    assert adapt(model_config, 2, "dummy").arguments() == [
        *["--data-parallel-size", "2"],
        *["--load-format", "dummy", *flags],
    ]
