"""The model configs in `models/`: the engine takes their flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engine.flags import flag_problems
from serving.engine.server import VllmServer
from serving.model_configs import adapt, list_model_configs, load_model_config

SERVED = {
    model_config.name: model_config
    for model_config in map(load_model_config, list_model_configs())
    if not model_config.hosted
}


@pytest.mark.slow
def test_the_engine_knows_every_flag_of_every_model_config() -> None:
    lines = {
        name: VllmServer(model_config, "some/model", Path("unused")).arguments
        for name, model_config in SERVED.items()
    }
    lines |= {
        f"{name} adapted": adapt(model_config, 2 if model_config.nodes == 1 else 1, "dummy").arguments()
        for name, model_config in SERVED.items()
        if model_config.gpus
    }
    lines["misspelt"] = ["--enable-prefix-cachin"]
    lines["no number"] = ["--max-num-seqs", "many"]
    lines["no field"] = ["--structured-outputs-config", '{"backnd": "xgrammar"}']
    problems = flag_problems(lines)
    assert sorted(problems) == ["misspelt", "no field", "no number"]
    assert problems["misspelt"] == ["unknown flag --enable-prefix-cachin"]
    assert "'many'" in problems["no number"][0]
