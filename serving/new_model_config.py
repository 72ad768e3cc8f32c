"""Write the model config of a model on the Hugging Face hub from its id alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from serving.errors import InvalidModelConfig
from serving.hub import CONFIG, fetch_texts
from serving.tokens.tokenizer import ChatTokenizer

SAMPLING = ("temperature", "top_p", "top_k")
"""Values of a role that publishers recommend in `generation_config.json`."""

THINKING_TOKENS = {"actor": 256, "inducer": 2048}
"""Default budgets of a model that thinks, in tokens."""

CALLS = {"qwen3_xml": "<function=", "qwen3_json": "<tool_call>", "llama3_json": '"parameters":'}
"""Tool formats, and the text by which a rendered call shows each; the first that occurs is the model's."""

HEADER = """\
# {model} on the Hugging Face hub, at its newest commit; `serving/model_config.py` explains all fields.
# Those that are left out have defaults: `tried`, `prices` (0), `server`, and `string_tokens` of the roles.
"""


def describe_hub_model(model: str, name: str) -> str:
    """Return the text of a model config for one GPU, with the settings that the model's files show.

    Args:
        model: its id on the hub, `ORGANISATION/MODEL`.
        name: name of the model config.

    Raises:
        InvalidModelConfig: the hub cannot be reached, the model has no usable tokenizer, or it writes tool
            calls in an unknown format.
        FilesMissing: the hub does not provide its files.
    """
    commit, folder = fetch_texts(model)
    tokenizer = ChatTokenizer(folder)
    config = _read(folder / CONFIG)
    text_config = {**config, **config.get("text_config", {})}
    context = text_config.get("max_position_embeddings")
    if not isinstance(context, int):
        raise InvalidModelConfig(f"{model}: its config.json has no max_position_embeddings (context length)")
    content = {
        "name": name,
        "id": model,
        "revision": commit,
        "context": context,
        "tool_format": _find_tool_format(model, tokenizer),
        "thinking": _find_thinking(tokenizer),
        "gpus": 1,
    }
    if "linear_attention" in text_config.get("layer_types", []):
        content["cache"] = "hybrid"
    sampling = _read(folder / "generation_config.json")
    own = {key: sampling[key] for key in SAMPLING if sampling.get(key) is not None}
    roles = {
        role: own | ({"thinking_tokens": min(tokens, context // 8)} if content["thinking"] != "none" else {})
        for role, tokens in THINKING_TOKENS.items()
    }
    if roles["actor"]:
        content["roles"] = roles
    return HEADER.format(model=model) + yaml.safe_dump(content, sort_keys=False)


def _read(file: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file; an empty one if there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _find_tool_format(model: str, tokenizer: ChatTokenizer) -> str:
    """Return the format in which the chat template writes a call. Raises `InvalidModelConfig`."""
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "door"}}}
    messages = [
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    try:
        text = str(tokenizer.huggingface.apply_chat_template(messages, tokenize=False))
    except Exception:  # templates raise errors of their own
        text = ""
    found = next((name for name, sign in CALLS.items() if sign in text and "look" in text), None)
    if found is None:
        raise InvalidModelConfig(
            f"{model}: its chat template writes no tool calls in a known format ({', '.join(CALLS)});"
            " serving/tokens/formats/ has them"
        )
    return found


def _find_thinking(tokenizer: ChatTokenizer) -> str:
    """Return how a thinking region opens, from the text that opens the model's turn."""
    _, opened = tokenizer.first_prompt([{"role": "user", "content": "A"}], [], enable_thinking=True)
    if "<think>" in opened:
        return "none" if "</think>" in opened else "prompted"
    template = json.dumps(tokenizer.huggingface.chat_template)
    return "generated" if "enable_thinking" in template else "none"
