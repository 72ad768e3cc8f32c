"""A tokenizer with the control tokens and the turns of Llama 3.1, for the tests of its tool format."""

from __future__ import annotations

import json
from pathlib import Path

from serving.model_configs import MODELS
from tests.bundled_models import bundled_folder

CONTROL = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|eom_id|>"),
)


def make_folder(folder: Path) -> str:
    """Write it to a folder."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(bundled_folder("tiny-random"))
    tokenizer.add_special_tokens({"additional_special_tokens": [*CONTROL], "eos_token": "<|eot_id|>"})
    tokenizer.chat_template = (MODELS / "shapes" / "llama3.jinja").read_text()
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"vocab_size": len(tokenizer)}))
    return str(folder)
