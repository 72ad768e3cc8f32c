"""The model configs in `models/`: the engine takes their flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engine.server import VllmServer
from serving.model_configs import adapt, list_model_configs, load_model_config


@pytest.mark.slow
def test_the_engine_knows_every_flag_of_every_model_config() -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser(allow_abbrev=False))
    for model_config in map(load_model_config, list_model_configs()):
        if model_config.hosted:
            continue
        adapted = adapt(model_config, replicas=2 if model_config.gpus else 1)
        for each in (model_config, adapted):
            parser.parse_args(VllmServer(each, "some/model", Path("unused")).arguments)
    with pytest.raises(SystemExit):
        parser.parse_args(["--enable-prefix-cachin"])
