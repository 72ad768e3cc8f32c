"""The model configs in `models/`: the engine takes their flags."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


NEUTRAL = {
    **{"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
    **{"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "logit_bias": {}},
}


@pytest.mark.slow
def test_fields_at_neutral_values_cost_a_gpu_s_sampler_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy
    import torch
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.v1.worker.gpu import buffer_utils
    from vllm.v1.worker.gpu.sample.sampler import Sampler
    from vllm.v1.worker.gpu.states import RequestState

    monkeypatch.setattr(buffer_utils, "is_uva_available", lambda: False)  # its own way without pinned memory
    cpu = torch.device("cpu")
    states = RequestState(4, 128, 64, 0, 256, cpu)
    sampler = Sampler(SimpleNamespace(reasoning_config=None), 4, 256, cpu, states)  # type: ignore[arg-type]

    def processes_logits(**fields: Any) -> bool:
        request = CompletionRequest(model="m", prompt=[1], **fields)
        sampler.add_request(0, request.to_sampling_params(8))
        return bool(sampler.needs_logits_processing[0])

    assert not processes_logits(**NEUTRAL)
    assert sampler.get_logprobs_dims(numpy.array([0])) is None  # no log-probabilities
    others = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "presence_penalty": 1.5}
    for name, value in others.items():
        assert processes_logits(**{**NEUTRAL, name: value}), name
