"""Computes vLLM's KV caches with vLLM's own code for GPUs that this machine does not have.

    python -m tests.gpu.engine_caches H100 [MODEL...]

prints a JSON array with an `EngineCache` for each model configuration. The command line that `VllmServer`
makes goes through vLLM's parser and engine configuration. The model is built on torch's meta device, which
takes no memory. vLLM then divides the remaining memory into blocks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from serving.engine.capacity import overhead_bytes, shape_of
from serving.engine.gpus import Gpu
from serving.engine.server import VllmServer
from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig
from serving.model_configs import CHECKOUT, adapt, list_model_configs, load_model_config
from serving.sizing import answer_tokens, fit, read_config
from serving.weights import prepare
from tests.gpu.faked_cuda import GPUS, PROCESSORS, fake_gpus, load_driver, visible_bytes

MOST_GPUS = 8

HOME = CHECKOUT / ".cache" / "faked-gpus"
"""Home directory of these processes: libraries leave their caches there, and the next process reuses them."""


class EngineCache(msgspec.Struct, kw_only=True):
    """The KV cache that vLLM computes for one model configuration on one kind of GPU.

    Attributes:
        model: name of the model configuration.
        block_tokens: tokens of one block of the KV cache.
        blocks: blocks of one replica.
        match_unit: tokens by which prefix matches are rounded down.
        refused: vLLM's reason where the memory is too small for the model or one conversation.
        attention: names of the attention backends that vLLM chose.
        worker: module of the vLLM worker that the project's worker extends.
    """

    model: str
    block_tokens: int
    blocks: int = 0
    match_unit: int = 0
    refused: str = ""
    attention: list[str]
    worker: str


def engine_config(model_config: ModelConfig, model: str) -> Any:
    """Return vLLM's configuration (`VllmConfig`) for the command line of a model's server."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers import cli_args
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    server = VllmServer(model_config, Path("unused"))
    options = cli_args.make_arg_parser(FlexibleArgumentParser()).parse_args(server.arguments)
    cli_args.validate_parsed_serve_args(options)
    engine = AsyncEngineArgs.from_cli_args(options)
    return engine.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def build_model(config: Any) -> Any:
    """Return the model of the first tensor-parallel rank, without memory for its weights."""
    import torch
    from torch.overrides import TorchFunctionMode
    from vllm.distributed import parallel_state
    from vllm.model_executor.model_loader.utils import initialize_model

    class WithoutMemory(TorchFunctionMode):
        """Creates on the meta device what a model asks to have on its GPU."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if "cuda" in str(kwargs.get("device")) or isinstance(kwargs.get("device"), int):
                kwargs["device"] = "meta"
            return func(*args, **kwargs)

    class Group:
        """A group of processes as its first member sees it; the others do not exist."""

        rank = local_rank = rank_in_group = 0
        is_first_rank = True
        use_custom_op_call = False
        unique_name = "faked"
        device_group = cpu_group = device_communicator = None

        def __init__(self, world_size: int) -> None:
            self.world_size = world_size
            self.is_last_rank = world_size == 1
            self.ranks = list(range(world_size))

    ranks, stages = config.parallel_config.tensor_parallel_size, config.parallel_config.pipeline_parallel_size
    for name, size in {"_TP": ranks, "_WORLD": ranks * stages, "_PP": stages}.items():
        setattr(parallel_state, name, Group(size))
    for name in ("_DCP", "_PCP", "_DP"):
        setattr(parallel_state, name, Group(1))
    usual = torch.get_default_dtype()
    torch.set_default_dtype(config.model_config.dtype)
    try:
        with torch.device("meta"), WithoutMemory():
            return initialize_model(config)
    finally:
        torch.set_default_dtype(usual)


def engine_cache(model_config: ModelConfig, gpu: Gpu) -> EngineCache:
    """Return the KV cache that vLLM computes for a model configuration on GPUs of one kind."""
    from vllm.config import get_layers_from_vllm_config, set_current_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
    from vllm.v1.core.kv_cache_utils import get_kv_cache_configs, resolve_kv_cache_block_sizes
    from vllm.v1.worker import worker_base

    os.environ |= {name: str(value) for name, value in model_config.server.env.items()}
    registry._run_in_subprocess = lambda inspect: inspect()  # another process would have no fakes
    config = engine_config(model_config, prepare(model_config, lambda line: None))
    ranks = config.parallel_config.tensor_parallel_size
    with set_current_vllm_config(config):
        model = build_model(config)
        current_platform.update_block_size_for_backend(config)
        layers = get_layers_from_vllm_config(config, AttentionLayerBase)
        found = {name: layer.get_kv_cache_spec(config) for name, layer in layers.items()}
        specs = {name: spec for name, spec in found.items() if spec is not None}
        backends = worker_base.get_current_attn_backends(config)
        layouts = [layout.name for layout in worker_base.get_supported_kv_cache_layouts(backends)]
        layout = resolve_kv_cache_layout(config, [layouts] * ranks, list(specs.values()))
        worker_base.record_kv_cache_layout(config.cache_config, layout.name)

    weights = sum(each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers()))
    cache = EngineCache(
        model=model_config.name,
        block_tokens=config.cache_config.block_size,
        attention=sorted({layer.get_attn_backend().get_name() for layer in layers.values()}),
        worker=resolve_obj_by_qualname(config.parallel_config.worker_cls).__base__.__module__,
    )
    usable = visible_bytes(gpu) * config.cache_config.gpu_memory_utilization
    shape = shape_of(read_config(model_config) or {})
    assert shape is not None
    # vLLM measures this when it starts on a GPU. Without one, our own estimate has to do.
    reserve = overhead_bytes(shape, config.scheduler_config.max_num_batched_tokens, ranks)
    try:
        caches = get_kv_cache_configs(config, [specs] * ranks, [int(usable - weights - reserve)] * ranks)
    except ValueError as error:  # too little memory for the weights, or for one conversation
        cache.refused = str(error)
        return cache
    cache.blocks = caches[0].num_blocks
    _, cache.match_unit = resolve_kv_cache_block_sizes(caches[0], config)
    return cache


def served(model_config: ModelConfig, gpu: Gpu) -> ModelConfig:
    """Return the configuration with random weights as it is served on these GPUs.

    One that does not fit gets the least context that it can have: vLLM has to refuse even that.
    """
    dummy = adapt(model_config, load_format="dummy")
    prepare(dummy, lambda line: None)
    try:
        return fit(dummy, [gpu])
    except InvalidModelConfig:
        return msgspec.structs.replace(dummy, context=answer_tokens(dummy) + 1)


def main(kind: str, *models: str) -> None:
    """Print the KV caches of model configurations, by default of all that are for GPUs."""
    model_configs = [load_model_config(name) for name in models or list_model_configs()]
    HOME.mkdir(parents=True, exist_ok=True)
    os.environ |= dict.fromkeys(("HOME", "VLLM_CACHE_ROOT", "TRITON_LIBCUDA_PATH"), str(HOME))
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}
    load_driver(HOME)
    gpu = GPUS[kind]
    fake_gpus(gpu, PROCESSORS[kind], MOST_GPUS)
    caches = [
        engine_cache(served(model_config, gpu), gpu) for model_config in model_configs if model_config.gpus
    ]
    print(msgspec.json.encode(caches).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
