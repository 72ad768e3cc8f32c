"""The engine takes the flags of the configs in `models/` and our requests, and the doctor finds it well."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pytest

from serving.conversation import NEUTRAL
from serving.engine.server import VllmServer
from serving.model_config import ModelConfig, Role, Roles
from serving.model_configs import adapt, list_model_configs, load_model_config
from serving.probes.tool_battery import answer_probe, battery
from serving.tokens.tokenizer import ChatTokenizer
from tests.scripted_engine import sample_call
from tests.scripted_runs import scripted_model, speedrunner


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
            parser.parse_args(VllmServer(each, Path("unused")).arguments)
    with pytest.raises(SystemExit):
        parser.parse_args(["--enable-prefix-cachin"])


@pytest.mark.slow
@pytest.mark.parametrize("api", ["completions", "chat", "responses"])
async def test_no_request_takes_sampling_from_the_weights_or_the_server(
    api: Literal["completions", "chat", "responses"],
    tiny_model_config: ModelConfig,
    tiny_tokenizer: ChatTokenizer,
) -> None:
    from vllm.config.model import ModelConfig as VllmConfig
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.sampling_params import SamplingParams

    bare = Role(string_tokens=8)  # it chooses no sampling
    changed = msgspec.structs.replace(tiny_model_config, api=api, roles=Roles(bare, bare))
    async with scripted_model(sample_call, changed, tiny_tokenizer) as scripted:
        await answer_probe(scripted.model, bare, battery()[0])
    (request,) = scripted.server.requests
    kinds = {"completions": CompletionRequest, "chat": ChatCompletionRequest, "responses": ResponsesRequest}
    kind: Any = kinds[api]
    every = dict.fromkeys([*SamplingParams.__struct_fields__, "max_new_tokens"], 0.3)
    weights: Any = SimpleNamespace(generation_config="vllm", override_generation_config=every)
    defaults = VllmConfig.get_diff_sampling_param(weights)  # what vLLM would take from there, by its own list
    sent = request.body
    assert {"min_p"} < {*defaults} - {"max_tokens"} < {*sent}  # the chat API has another name for it
    less = {key: each for key, each in sent.items() if key != "min_p"}
    untouched, spoilt, lost = (
        repr(kind(**fields).to_sampling_params(8, given))
        for fields, given in ((sent, {}), (sent, defaults), (less, defaults))
    )
    assert untouched == spoilt != lost


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

    assert not processes_logits(**NEUTRAL, logit_bias={})
    assert sampler.get_logprobs_dims(numpy.array([0])) is None  # no log-probabilities
    others = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "presence_penalty": 1.5}
    for name, value in others.items():
        assert processes_logits(**{**NEUTRAL, name: value}), name


@pytest.mark.slow
def test_this_machine_can_play_the_bundled_model(tmp_path: Path) -> None:
    done = speedrunner("doctor", "model=tiny", "env=scienceworld", "env.family=4", f"run.dir={tmp_path}/one")
    assert done.returncode == 0, done.stdout
    assert "ok           files of tiny: " in done.stdout
