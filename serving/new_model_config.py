"""Write the model config of a model on the Hugging Face hub, or in a folder, from its files alone, and check
one against them before a server starts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from serving.engine.gpus import read_gpus
from serving.errors import InvalidModelConfig
from serving.hub import CONFIG, WEIGHTS, fetch_texts, missing_files
from serving.model_config import ModelConfig
from serving.sizing import read_config
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import open_transcript

SAMPLING = ("temperature", "top_p", "top_k")
"""Values of a role that publishers recommend in `generation_config.json`."""

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
        model: its id on the hub, `ORGANISATION/MODEL`, or its folder.
        name: name of the model config.

    Raises:
        InvalidModelConfig: the hub cannot be reached, or the model has no usable tokenizer or no weights.
        FilesMissing: the hub does not provide its files.
    """
    if isinstance(model, Path):
        folder, gpus = model.resolve(), min(1, len(read_gpus().usable))
        if missing := [*missing_files(folder)]:
            raise InvalidModelConfig(f"{folder} lacks {', '.join(missing)}")
        place = {"path": str(folder)}
    else:
        (commit, folder), gpus = fetch_texts(model), 1
        place = {"id": model, "revision": commit}
    tokenizer = ChatTokenizer(folder)
    config = _read(folder / CONFIG)
    text_config = {**config, **config.get("text_config", {})}
    context = text_config.get("max_position_embeddings")
    if not isinstance(context, int):
        raise InvalidModelConfig(f"{model}: its config.json has no max_position_embeddings (context length)")
    content: dict[str, Any] = {"name": name, **place, "context": context}
    content["tool_format"] = _find_tool_format(tokenizer) or "qwen3_json"
    if not tokenizer.template.writes_tools:
        content["tools_in"] = "system"
    content["thinking"] = _find_thinking(tokenizer)
    if gpus:
        content["gpus"] = gpus
    else:
        content["context"] = min(context, CPU_CONTEXT)
        content["server"] = CPU_SERVER
        content["dtype"] = "float32"
    if "linear_attention" in text_config.get("layer_types", []):
        content["cache"] = "hybrid"
    sampling = _read(folder / "generation_config.json")
    own = {key: sampling[key] for key in SAMPLING if sampling.get(key) is not None}
    if own:
        content["roles"] = {"actor": own, "inducer": own.copy()}
    return HEADER.format(model=model) + yaml.safe_dump(content, sort_keys=False)


def _read(file: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file; an empty one if there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _find_tool_format(tokenizer: ChatTokenizer) -> str | None:
    """Return the format in which the chat template writes a call; `None` if it writes none, or in a form of
    its own."""
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "door"}}}
    messages = [
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    try:
        text = str(tokenizer.huggingface.apply_chat_template(messages, tokenize=False))
    except Exception:  # templates raise errors of their own
        text = ""
    return next((name for name, sign in CALLS.items() if sign in text and "look" in text), None)


def _find_thinking(tokenizer: ChatTokenizer) -> str:
    """Return how a thinking region opens, from the text that opens the model's turn."""
    _, opened = tokenizer.first_prompt([{"role": "user", "content": "A"}], [], enable_thinking=True)
    if "<think>" in opened:
        return "none" if "</think>" in opened else "prompted"
    template = json.dumps(tokenizer.huggingface.chat_template)
    return "generated" if "enable_thinking" in template else "none"


_load_tokenizer = lru_cache(maxsize=4)(ChatTokenizer)
"""Loads a model's tokenizer once: the library never frees the words that one has cached."""


def check_files(
    model_config: ModelConfig, place: str, say: Callable[[str], None] = lambda line: None, *, starts: bool
) -> ChatTokenizer | None:
    """Check a model config against the model's files, and return the tokenizer; `None` on the chat API.

    Args:
        place: folder or hub id, as `serving.weights.prepare` returns it.
        say: called with a note about the chat template.
        starts: whether a server is started, which needs weights.

    Raises `InvalidModelConfig`: files are missing, or the model config does not fit them.
    """
    folder, is_dummy = Path(place), model_config.load_format == "dummy"
    if starts and model_config.id is None:
        lost = [each for each in missing_files(folder) if not (is_dummy and each == WEIGHTS)]
        how = [f"convert {each.name}, as models/smollm2/convert.py does" for each in folder.glob("*.gguf")]
        if lost:
            raise InvalidModelConfig("; ".join((f"{folder} lacks {', '.join(lost)}", *how[:1])))
    is_chat, roles = model_config.api == "chat", model_config.roles
    if is_chat and not (roles.actor.template_options or roles.inducer.template_options):
        return None
    tokenizer = _load_tokenizer(place, model_config.revision)
    if problems := "; ".join(_find_problems(model_config, tokenizer)):
        raise InvalidModelConfig(f"model {model_config.name!r} does not fit its files: {problems}")
    if tokenizer.template.note and not is_chat:
        say(f"{model_config.name}: {tokenizer.template.note}")
    return None if is_chat else tokenizer


def _find_problems(model_config: ModelConfig, tokenizer: ChatTokenizer) -> Iterator[str]:
    is_dummy = model_config.load_format == "dummy"
    roles = model_config.roles.actor, model_config.roles.inducer
    source = tokenizer.huggingface.chat_template
    words = {*re.findall(r"\w+", source if isinstance(source, str) else "\n".join(source.values()))}
    for options in (role.template_options for role in roles):
        if not is_dummy and (unknown := sorted(set(options) - words)):
            yield f"its chat template does not use these template_options: {', '.join(unknown)}"
    if model_config.api == "chat":
        return
    config = (not is_dummy and read_config(model_config)) or {}
    text = {**config, **(config.get("text_config") or {})}
    limit = text.get("max_position_embeddings") or model_config.context
    scaling = {**(text.get("rope_scaling") or {}), **(text.get("rope_parameters") or {})}
    if model_config.context > limit and "factor" not in scaling:  # a factor extends the limit
        yield f"context {model_config.context:,} is beyond the model's {limit:,} (max_position_embeddings)"
    tool = ToolSpec("probe", "Probe.", {"type": "object", "properties": {}, "required": []})
    said = [{"role": "system", "content": "A"}, {"role": "user", "content": "B"}]
    try:
        for name in ("actor", "inducer"):
            open_transcript(model_config, name, tokenizer, said, [tool])
        form, style = _find_tool_format(tokenizer), _find_thinking(tokenizer)
    except Exception as error:  # templates raise errors of their own
        yield " ".join(str(error).split())
        return
    if tokenizer.template.writes_tools and form not in (None, model_config.tool_format):
        yield f"its chat template writes calls as `tool_format: {form}`, not {model_config.tool_format}"
    if style != model_config.thinking and any(role.thinking_tokens for role in roles):
        yield f"`thinking: {model_config.thinking}`, but its chat template shows `thinking: {style}`"
