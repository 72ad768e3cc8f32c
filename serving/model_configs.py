"""Model configs as files: one YAML file per model, read, checked and adapted to a run's options."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig, Role, ToolFormatName
from speedrunner.plain.plain_records import WrongData, record, suggest
from speedrunner.plain.plain_yaml import NotPlain, read_yaml_file

CHECKOUT = Path(__file__).resolve().parents[1]
MODELS = CHECKOUT / "models"

ROLES = ("actor", "inducer")

STRING_TOKENS = {"actor": 1024, "inducer": 8192}
"""Default of each role's longest string argument: an actor writes names, an inducer whole skills. A short
context lowers it to a quarter of the context."""

THINKING_TOKENS = {"actor": 256, "inducer": 2048}
"""Default of each role's budget for reasoning (completions API), at most an eighth of the context. Without
any, ReAct would only act, so a model config or a command must ask for 0."""

DEFAULTS: dict[str, Any] = {
    "tried": "Nothing yet.",
    "prices": {"uncached": 0, "cached": 0, "output": 0},
    "server": {
        "flags": {
            "enable-prefix-caching": True,
            "enable-prompt-tokens-details": True,
            "enable-per-request-metrics": True,
            "generation-config": "vllm",
            "structured-outputs-config": {"backend": "xgrammar"},
            "disable-uvicorn-access-log": True,
        },
        "env": {"VLLM_NO_USAGE_STATS": 1},
    },
}
"""What the file of a model on this machine or on the hub may leave out; `roles` as well. Its flags and
variables add to these; `null` removes one."""

OWN_FLAGS = frozenset(
    {"model", "served-model-name", "revision", "tokenizer-revision", "max-model-len", "dtype"}
    | {"host", "port", "uds", "api-key", "data-parallel-size", "load-format"}
    | {"enable-lora", "lora-modules", "max-lora-rank"}
)
"""Flags that the server object sets itself, from the model config's other fields; `server.flags` must not set
them."""


def list_model_configs() -> list[str]:
    """Return the names of the model configs in `models/`, sorted."""
    return sorted(path.stem for path in MODELS.glob("*.yaml"))


def load_model_config(name_or_path: str) -> ModelConfig:
    """Read and check a model config.

    Args:
        name_or_path: name of a model config in `models/`, or the path of any `.yaml` file.

    Raises `InvalidModelConfig`: there is no such model config, or it has an invalid value.
    """
    is_path = name_or_path.endswith((".yaml", ".yml"))
    file = Path(name_or_path).expanduser() if is_path else MODELS / f"{name_or_path}.yaml"
    if not is_path and name_or_path not in (known := list_model_configs()):
        near = suggest(name_or_path, known)
        raise InvalidModelConfig(
            f"unknown model config {name_or_path!r}{near}: see `speedrunner list models`"
        )
    try:
        content = read_yaml_file(file)
    except NotPlain as error:
        raise InvalidModelConfig(f"model config {error}") from None
    try:
        return _model_config(_fill_in(content))
    except WrongData as error:
        raise InvalidModelConfig(f"model config {file}: {error}") from None


def describe_model_name(given: str) -> str:
    """Return how to get a model config for a model's folder or hub id; empty for anything else."""
    if not (Path(given).is_dir() or re.fullmatch(r"[\w.-]+/[\w.-]+", given)):
        return ""
    return f"{given} is a model, not a model config: `speedrunner init model {given}` writes NAME.yaml"


def adapt(
    model_config: ModelConfig,
    replicas: int | None = None,
    load_format: str | None = None,
    prefix_caching: bool | None = None,
    context: int | None = None,
    roles: Mapping[str, Mapping[str, Any]] | None = None,
    used: Collection[str] = ROLES,
) -> ModelConfig:
    """Return the model config with other `replicas`, another `load_format`, prefix caching on or off, at most
    `context` tokens, and other values of its roles' fields, by role. `None` or `auto` keeps the value. The
    answers of `used` roles must fit the context.

    Raises `InvalidModelConfig` if the model config does not allow it.
    """
    changes = {"replicas": replicas, "load_format": load_format}
    given = {name: value for name, value in changes.items() if value not in (None, "auto")}
    content = msgspec.to_builtins(model_config) | given
    if prefix_caching is not None:
        content["server"]["flags"]["enable-prefix-caching"] = prefix_caching
    if context is not None:
        content["context"] = min(context, model_config.context)
    for role, values in (roles or {}).items():
        content["roles"][role] |= values
    try:
        return _model_config(content, used)
    except WrongData as error:
        problem = str(error).replace("roles.", "model.")  # the key in a command
        raise InvalidModelConfig(f"model {model_config.name!r}: {problem}") from None


def _fill_in(content: Any) -> Any:
    """Return a file's content with the defaults. A hosted model has none: its prices must be stated."""
    if not isinstance(content, dict) or content.get("base_url") is not None:
        return content
    context = content.get("context")
    most = context if isinstance(context, int) and context >= 8 else 4 * max(STRING_TOKENS.values())
    roles = {name: {"string_tokens": min(tokens, most // 4)} for name, tokens in STRING_TOKENS.items()}
    if content.get("api", "completions") == "completions":
        for name, tokens in THINKING_TOKENS.items():
            roles[name]["thinking_tokens"] = min(tokens, most // 8)
    # A turn of a hybrid model resumes within 16 tokens of the last prompt's end, not in blocks.
    unit = {"prefix-match-unit": 16} if content.get("cache") == "hybrid" else {}
    server = _add(DEFAULTS["server"], {"flags": unit})
    return {
        **DEFAULTS,
        **content,
        "roles": _add(roles, content.get("roles", {})),
        "server": _add(server, content.get("server", {})),
    }


def _add(defaults: Any, own: Any) -> Any:
    """Return mappings with the defaults that they do not set; `None` removes a default value."""
    if not isinstance(defaults, dict) or not isinstance(own, dict):
        return own
    merged = defaults | {name: _add(defaults.get(name), value) for name, value in own.items()}
    removed = {
        name for name, value in defaults.items() if merged[name] is None and not isinstance(value, dict)
    }
    return {name: value for name, value in merged.items() if name not in removed}


def _model_config(content: object, used: Collection[str] = ROLES) -> ModelConfig:
    """Check that the fields go together and return the model config. Without weights, its path is its shape's
    folder."""
    model_config = record(ModelConfig, content)
    if problems := list(_contradictions(model_config, used)):
        raise WrongData(*problems)
    if model_config.load_format != "dummy":
        return model_config
    folder, recipe = f".cache/models/{model_config.shape}-shape", f"random/build.py {model_config.shape}"
    return msgspec.structs.replace(model_config, path=folder, recipe=recipe, id=None, revision=None)


def _contradictions(model_config: ModelConfig, used: Collection[str]) -> Iterator[str]:
    """Return all contradictions between the fields of a model config."""
    given = [name for name in ("path", "id", "base_url") if getattr(model_config, name) is not None]
    if len(given) != 1:
        yield (
            "it must name exactly one of `path` (folder), `id` (on the hub) and `base_url` (hosted model), "
            f"but has {' and '.join(given) or 'none'}"
        )
    if re.search("//[^/]*@", model_config.base_url or ""):
        yield "`base_url` must have no user name and no password, since it is recorded: use `api_key_env`"
    if model_config.id is not None and model_config.revision is None:
        yield f"`id: {model_config.id}` needs a `revision` (a commit of its hub repository)"
    if model_config.id is None and model_config.revision is not None:
        yield "`revision` goes with `id` alone"
    if model_config.hosted and model_config.lora is not None:
        yield "`lora` goes with `path` or `id` alone"
    if model_config.hosted and model_config.api == "completions":
        yield "`base_url` (a hosted model) needs `api: chat` or `api: responses`"
    if model_config.api == "completions" and model_config.tool_format is None and not model_config.hosted:
        yield f"`api: completions` needs a `tool_format`: {' or '.join(get_args(ToolFormatName))}"
    answers = dict[str, int]()
    for name in ROLES:
        role = model_config.role(name)
        yield from (f"roles.{name}.{problem}" for problem in _unsupported_by_api(model_config, role))
        if name in used:
            answers[f"roles.{name}"] = role.thinking_tokens + role.string_tokens
    if full := [f"{name} ({most})" for name, most in answers.items() if most >= model_config.context]:
        yield (
            f"{' and '.join(full)}: thinking_tokens + string_tokens must be below the context of"
            f" {model_config.context} tokens"
        )
    if model_config.load_format == "dummy" and model_config.shape is None:
        yield "`load_format: dummy` needs a `shape` (models/shapes/shapes.yaml lists them)"
    flags = model_config.server.flags
    if model_config.cache == "attention" and "prefix-match-unit" in flags:
        yield "server.flags.prefix-match-unit goes with `cache: hybrid` alone"
    unit = flags.get("prefix-match-unit", 1)
    if type(unit) is not int or unit < 1:
        yield f"server.flags.prefix-match-unit must be a number of tokens, not {unit!r}"
    scheduler = flags.get("scheduler-cls")
    if not isinstance(scheduler, str | None):
        yield f"server.flags.scheduler-cls must be the name of a class, not {scheduler!r}"
    if model_config.convoy_steps and not (model_config.can_convoy or scheduler):
        yield (
            f"`convoy_steps: {model_config.convoy_steps}` needs `cache: hybrid`, without speculative-config"
            " in server.flags"
        )
    has_cache = model_config.cache == "hybrid" and flags.get("enable-prefix-caching", True)
    if has_cache and "speculative-config" in flags:
        yield (
            "server.flags.speculative-config gives wrong answers with the cache of a hybrid model"
            " (vllm#53912): set server.flags.enable-prefix-caching to false"
        )
    shards = flags.get("tensor-parallel-size", 1)
    if model_config.gpus and shards != model_config.gpus:
        yield f"`gpus: {model_config.gpus}` contradicts server.flags.tensor-parallel-size, which is {shards}"
    for flag in flags:
        if flag in OWN_FLAGS:
            yield f"server.flags.{flag}: not here, it is set from the model config's other fields"


def _unsupported_by_api(model_config: ModelConfig, role: Role) -> Iterator[str]:
    """Return a role's settings that the model config's API does not support."""
    if role.thinking_tokens and model_config.api != "completions":
        yield f"thinking_tokens must be 0 with `api: {model_config.api}`, which has no thinking budget"
    if not model_config.hosted and role.reasoning_effort is not None:
        yield "reasoning_effort is for hosted models; use thinking_tokens or template_options for others"
    if model_config.hosted and role.template_options:
        yield "template_options is for models with a chat template here; use reasoning_effort for hosted ones"
    for name in {"messages", "tools", "documents", "add_generation_prompt"} & set(role.template_options):
        yield f"template_options.{name}: not here, each request sets it"
    has_ids = model_config.api == "completions"
    if model_config.thinking != "none" and has_ids and "enable_thinking" in role.template_options:
        yield "template_options.enable_thinking: not here, thinking_tokens sets it"
