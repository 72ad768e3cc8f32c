"""What a model's files show: a model config is written from them, and each one is checked against them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from serving.engine.gpus import read_gpus
from serving.errors import InvalidCall, InvalidModelConfig
from serving.model_config import ModelConfig, Role
from serving.sizing import read_config
from serving.tokens.formats import FORMATS
from serving.tokens.grammar import dumps
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import Transcript
from serving.weights import (
    ADAPTER_CONFIG,
    CONFIG,
    HUB_ID,
    WEIGHTS,
    adapter_folder,
    fetch_texts,
    missing_files,
    read_json,
)
from speedrunner.plain.plain_records import WrongData, record

SAMPLING = ("temperature", "top_p", "top_k")
"""Values of a role that publishers recommend in `generation_config.json`."""

LONG = 'It says: "<a & b>", it\'s here.\n' * 500 + "End."
"""A text that a template must write as it is, about as long as the longest first prompts."""

LOOK = ToolSpec(
    "look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
)
REPLY = "zqreply"
CALLING: list[dict[str, Any]] = [
    {"role": "user", "content": "A"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "look", "arguments": {"at": "door"}}}],
    },
    {"role": "tool", "content": REPLY},
]
"""A conversation with a call of a tool, to see how a chat template writes it."""

CALLS = {"qwen3_xml": "<function=", "qwen3_json": "<tool_call>", "llama3_json": '"parameters":'}
"""Tool formats, and the text by which a rendered call shows each; the first that occurs is the model's."""

CPU_SERVER = {
    "flags": {
        **{"enforce-eager": True, "block-size": 32, "max-num-seqs": 32},
        "distributed-executor-backend": "vllm.v1.executor.uniproc_executor.UniProcExecutor",
    },
    "env": {"VLLM_CPU_KVCACHE_SPACE": 4, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": 1},
}
"""The server of a small model on a CPU."""

CPU_CONTEXT = 8192
"""Most tokens of its context: one conversation fits into the cache of a model of a billion weights."""

HEADER = """\
# {model}; `serving/model_config.py` explains all fields.
# Those that are left out have defaults: `tried`, `prices` (0), `server`, and
# `thinking_tokens` and `string_tokens` of the roles.
"""


def describe_model(model: str | Path, name: str) -> str:
    """Return the text of a model config with the settings that the model's files show.

    It is for one GPU; for a folder on a machine without GPUs, it is for the CPU.

    Args:
        model: its id on the hub, `ORGANISATION/MODEL`, or its folder; or the folder of a LoRA adapter.

    Raises:
        InvalidModelConfig: the model has no usable tokenizer or no weights.
        FilesMissing: the hub cannot be reached, or does not provide its files.
    """
    lora = {}
    if isinstance(model, Path) and (adapter := read_json(model / ADAPTER_CONFIG)):
        lora = {"lora": str(model.resolve())}
        model = _find_base(model, adapter.get("base_model_name_or_path"))
    if isinstance(model, Path):
        folder, gpus = model.resolve(), min(1, len(read_gpus().usable))
        _require_files(folder)
        place = {"path": str(folder)}
    else:
        folder, gpus = fetch_texts(model), 1
        place = {"id": model, "revision": folder.name}
    tokenizer = ChatTokenizer(folder)
    text_config = _read_text_config(read_json(folder / CONFIG))
    context = text_config.get("max_position_embeddings")
    if type(context) is not int or context <= 0:
        raise InvalidModelConfig(f"{model}: its config.json has no max_position_embeddings (context length)")
    content: dict[str, Any] = {"name": name, **place, **lora, "context": context}
    content["tool_format"] = form = _find_tool_format(tokenizer) or "qwen3_json"
    if not tokenizer.template.writes_tools or _find_difference(tokenizer, form):
        content["tools_in"] = "system"
    content["thinking"] = _find_thinking(tokenizer)
    if gpus:
        content["gpus"] = gpus
    else:
        content |= {"context": min(context, CPU_CONTEXT), "server": CPU_SERVER, "dtype": "float32"}
    if "linear_attention" in str(text_config.get("layer_types")):
        content["cache"] = "hybrid"
    sampling = read_json(folder / "generation_config.json")
    own = dict[str, Any]()
    for key in SAMPLING:
        with suppress(WrongData):  # such as top_k 0, which stands for all tokens
            if sampling.get(key) is not None and record(Role, {"string_tokens": 1, key: sampling[key]}):
                own[key] = sampling[key]
    if own:
        content["roles"] = {"actor": own, "inducer": own.copy()}
    return HEADER.format(model=model) + yaml.safe_dump(content, sort_keys=False)


def _find_base(adapter: Path, base: object) -> str | Path:
    """Return an adapter's base model: folder or hub id. Raises `InvalidModelConfig` if it is neither."""
    if isinstance(base, str) and Path(base).is_dir():
        return Path(base)
    if isinstance(base, str) and HUB_ID.fullmatch(base):
        return base
    raise InvalidModelConfig(
        f"{adapter} is a LoRA adapter of {base!r}, which is neither a folder here nor a hub id: correct"
        f" base_model_name_or_path in its {ADAPTER_CONFIG}"
    )


def _require_files(folder: Path, spare: str = "") -> None:
    """Raise `InvalidModelConfig` if a model's folder lacks files, except those named `spare`."""
    if lost := [name for name in missing_files(folder) if name != spare]:
        raise InvalidModelConfig(f"{folder} lacks {', '.join(lost)}")


def _read_text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a `config.json` with the values of its language model."""
    text = config.get("text_config")
    return {**config, **text} if isinstance(text, dict) else config


def _find_tool_format(tokenizer: ChatTokenizer) -> str | None:
    """Return the format in which the chat template writes a call; `None` if it writes none, or in a form of
    its own."""
    text = tokenizer.template.try_render(CALLING[:2], [])
    return next((name for name, sign in CALLS.items() if sign in text and "look" in text), None)


def _find_difference(tokenizer: ChatTokenizer, name: str) -> str:
    """Return what the chat template writes otherwise than a tool format and its frame; empty for nothing."""
    form = FORMATS[name]
    reply = dumps(REPLY) if form.frame.json_replies else REPLY
    tail = form.frame.end_of_turn + reply.join(form.frame.tool_reply)
    try:
        text = tokenizer.template.render(CALLING, [LOOK.openai], False)
    except InvalidModelConfig as error:
        return str(error)
    with suppress(InvalidCall):
        form.parse(text[text.rfind(form.begin) :].removesuffix(tail), {LOOK.name: LOOK})
        return ""
    return f"its chat template ends a call and its reply with {text[-len(tail) :]!r}, not as `{name}` does"


def _find_thinking(tokenizer: ChatTokenizer) -> str:
    """Return how a thinking region opens, from the text that opens the model's turn."""
    _, opened = tokenizer.first_prompt([{"role": "user", "content": "A"}], [], enable_thinking=True)
    if "<think>" in opened:
        return "none" if "</think>" in opened else "prompted"
    template = json.dumps(tokenizer.files.chat_template)
    return "generated" if "enable_thinking" in template else "none"


def _find_variables(tokenizer: ChatTokenizer) -> set[str]:
    """Return the variables that the chat template reads and does not set."""
    from jinja2 import Environment, TemplateSyntaxError, meta  # heavy

    source = tokenizer.files.chat_template
    text = source if isinstance(source, str) else "\n".join(source.values())
    text = re.sub(r"{%-?\s*(end)?generation\s*-?%}", "", text)  # a tag of transformers alone
    with suppress(TemplateSyntaxError):  # reported when it renders
        return meta.find_undeclared_variables(Environment(extensions=["jinja2.ext.loopcontrols"]).parse(text))
    return set()


_load_tokenizer = lru_cache(maxsize=4)(ChatTokenizer)
"""Loads a model's tokenizer once: the library never frees the words that one has cached."""


def check_files(
    model_config: ModelConfig, place: str, say: Callable[[str], None] = lambda line: None, *, starts: bool
) -> ChatTokenizer | None:
    """Check a model config against the model's files, and return the tokenizer; `None` on the APIs
    of messages.

    Args:
        place: the folder that `serving.weights.prepare` returns.
        starts: whether a server is started, which needs weights.

    Raises `InvalidModelConfig`: files are missing, or the model config does not fit them.
    """
    if starts:
        adapter_folder(model_config)
    if starts and model_config.id is None:
        _require_files(Path(place), WEIGHTS if model_config.load_format == "dummy" else "")
    is_chat, roles = model_config.api != "completions", model_config.roles
    if is_chat and not (roles.actor.template_options or roles.inducer.template_options):
        return None
    tokenizer = _load_tokenizer(place)
    if problems := "; ".join(_find_problems(model_config, tokenizer)):
        raise InvalidModelConfig(f"model {model_config.name!r} does not fit its files: {problems}")
    if (note := tokenizer.template.note(model_config.tools_in == "system")) and not is_chat:
        say(f"{model_config.name}: {note}")
    return None if is_chat else tokenizer


def _find_problems(model_config: ModelConfig, tokenizer: ChatTokenizer) -> Iterator[str]:
    is_dummy = model_config.load_format == "dummy"
    roles = model_config.roles.actor, model_config.roles.inducer
    for options in (role.template_options for role in roles):
        if options and not is_dummy and (unknown := sorted(set(options) - _find_variables(tokenizer))):
            yield f"its chat template does not use these template_options: {', '.join(unknown)}"
    if model_config.api != "completions":
        return
    text = _read_text_config((not is_dummy and read_config(model_config)) or {})
    limit = text.get("max_position_embeddings")
    is_extended = "'factor'" in f"{text.get('rope_scaling')} {text.get('rope_parameters')}"
    if type(limit) is int and model_config.context > limit and not is_extended:
        yield f"context {model_config.context:,} is beyond the model's {limit:,} (max_position_embeddings)"
    form, wanted = _find_tool_format(tokenizer), str(model_config.tool_format)
    if model_config.tools_in == "template" and tokenizer.template.writes_tools:
        if form not in (None, wanted):
            yield f"its chat template writes calls as `tool_format: {form}`, not {wanted}"
        elif difference := _find_difference(tokenizer, wanted):
            yield f"{difference} (remedy: `tools_in: system`)"
    said = [{"role": "system", "content": f"A. {LONG}"}, {"role": "user", "content": f"B. {LONG}"}]
    lost = dict[str, None]()
    try:
        for name in ("actor", "inducer"):
            read = Transcript(model_config, name, tokenizer, said, [LOOK]).text
            lost |= {message["role"]: None for message in said if message["content"] not in read}
        if lost:
            yield f"its chat template or tokenizer cuts or rewrites messages ({', '.join(lost)})"
        style = _find_thinking(tokenizer)
    except InvalidModelConfig as error:
        yield str(error)
        return
    if style != model_config.thinking and any(role.thinking_tokens for role in roles):
        yield f"`thinking: {model_config.thinking}`, but its chat template shows `thinking: {style}`"
