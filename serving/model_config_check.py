"""Checks for fields of a model config that are valid alone but contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

import msgspec

from serving.model_config import ModelConfig, Role, ToolFormatName

OWN_FLAGS = frozenset(
    {"model", "served-model-name", "revision", "tokenizer-revision", "max-model-len", "dtype"}
    | {"host", "port", "uds", "api-key", "data-parallel-size", "load-format"}
    | {"nnodes", "node-rank", "master-addr", "master-port", "headless"}
)
"""Flags that the server object sets itself, from the model config's other fields; `server.flags` must not set
them."""

_SHARDED = "server.flags.tensor-parallel-size (times pipeline-parallel-size)"


def contradictions(model_config: ModelConfig) -> Iterator[str]:
    """Return all contradictions between the fields of a model config."""
    given = [name for name in ("path", "id", "base_url") if getattr(model_config, name) is not None]
    if len(given) != 1:
        yield (
            "it must name exactly one of `path` (folder), `id` (on the hub) and `base_url` (hosted model), "
            f"but has {' and '.join(given) or 'none'}"
        )
    if model_config.id is not None and model_config.revision is None:
        yield f"`id: {model_config.id}` needs a `revision` (a commit of its hub repository)"
    if model_config.id is None and model_config.revision is not None:
        yield "`revision` goes with `id` alone"
    if odd := [name for name in model_config.server.env if not name or "=" in name]:
        yield f"server.env: {odd[0]!r} is no name of an environment variable"
    if model_config.recipe is not None and model_config.path is None:
        yield "`recipe` goes with `path` alone"
    if model_config.hosted and model_config.api == "completions":
        yield "`base_url` (a hosted model) needs `api: chat` or `api: responses`"
    if model_config.hosted and (names := _set_in_vain(model_config)):
        yield f"`base_url` (a hosted model) allows no {names}: nothing is started for it"
    if not model_config.hosted and model_config.api_key_env is not None:
        yield "`api_key_env` goes with `base_url` alone: a server started here makes its own key"
    if model_config.api == "completions" and model_config.tool_format is None and not model_config.hosted:
        yield f"`api: completions` needs a `tool_format`: {' or '.join(get_args(ToolFormatName))}"
    answers = dict[str, int]()
    for name in ("actor", "inducer"):
        role = model_config.role(name)
        yield from (f"roles.{name}.{problem}" for problem in _unsupported_by_api(model_config, role))
        answers[f"roles.{name}"] = role.thinking_tokens + role.string_tokens
    if full := [f"{name} ({most})" for name, most in answers.items() if most >= model_config.context]:
        yield (
            f"{' and '.join(full)}: thinking_tokens + string_tokens must be below the context of"
            f" {model_config.context} tokens"
        )
    if model_config.thinking_closing and (
        model_config.api != "completions" or model_config.thinking == "none"
    ):
        yield "`thinking_closing` needs `api: completions`, and `thinking: generated` or `thinking: prompted`"
    if model_config.load_format == "dummy" and model_config.shape is None:
        yield "`load_format: dummy` needs a `shape` (models/shapes/build_shapes.py lists them)"
    flags = model_config.server.flags
    if model_config.cache == "hybrid" and "prefix-match-unit" not in flags:
        yield "`cache: hybrid` needs server.flags.prefix-match-unit, such as 16"
    if model_config.cache == "attention" and "prefix-match-unit" in flags:
        yield "server.flags.prefix-match-unit goes with `cache: hybrid` alone"
    shards = _shards(flags)
    if model_config.gpus and shards != model_config.gpus:
        yield f"`gpus: {model_config.gpus}` contradicts {_SHARDED}, which is {shards}"
    if shards % model_config.nodes:
        yield f"`nodes: {model_config.nodes}` must divide {_SHARDED}, which is {shards}"
    if model_config.nodes > 1 and model_config.replicas > 1:
        yield "`nodes` above 1 needs `replicas: 1`; submit several jobs instead, each with its own server"
    for flag in flags:
        if flag.startswith("-"):
            yield f"server.flags.{flag}: write the flag without its leading dashes"
        if flag in OWN_FLAGS:
            yield f"server.flags.{flag}: not here, it is set from the model config's other fields"


def _shards(flags: Mapping[str, object]) -> int:
    """Return the number of parts of the model that compute at the same time; 0 if the flags are no
    numbers."""
    across, along = (flags.get(flag, 1) for flag in ("tensor-parallel-size", "pipeline-parallel-size"))
    return across * along if isinstance(across, int) and isinstance(along, int) else 0


def _unsupported_by_api(model_config: ModelConfig, role: Role) -> Iterator[str]:
    """Return a role's settings that the model config's API does not support."""
    if role.thinking_tokens and model_config.api != "completions":
        yield f"thinking_tokens must be 0 with `api: {model_config.api}`, which has no thinking budget"
    elif role.thinking_tokens and model_config.thinking == "none":
        yield "thinking_tokens must be 0 with `thinking: none`"
    if not model_config.hosted and role.reasoning_effort is not None:
        yield "reasoning_effort is for hosted models; use thinking_tokens for others"
    if model_config.hosted and model_config.api == "responses":
        if role.top_k is not None:
            yield "top_k must be null with a hosted model's `api: responses`, which has no such field"
        reasons = role.reasoning_effort not in (None, "none")
        for name in ("temperature", "top_p"):
            if reasons and getattr(role, name) is not None:
                yield f"{name} must be null with a reasoning_effort: reasoning models refuse it"


def _set_in_vain(model_config: ModelConfig) -> str:
    """Return the fields of a hosted model's config that only apply to our own server."""
    ours = ("cache", "gpus", "nodes", "replicas", "load_format", "shape", "server")
    defaults = {field.name: field.default for field in msgspec.structs.fields(ModelConfig)}
    return ", ".join(f"`{name}`" for name in ours if getattr(model_config, name) != defaults[name])
