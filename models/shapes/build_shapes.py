"""Writes a model folder with a published model's shape and no weights, for `load_format: dummy`.

    python models/shapes/build_shapes.py --shape NAME --out DIR

The configuration is the published one. The tokenizer is that of the bundled models, extended to the published
vocabulary size, so that sampling and grammars cost the same as with the published tokenizer. A single rename
creates DIR when the folder is complete. A second call with the same recipe changes nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

HERE = Path(__file__).resolve().parent
BUNDLED = HERE.parent / "random"
sys.path.append(str(BUNDLED))

from recipe import Write, build_tokenizer, run  # noqa: E402

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Family(NamedTuple):
    """Chat template and control tokens of the models of one type.

    Attributes:
        special: control tokens that decoding can skip.
        added: control tokens that decoding always shows.
        end: the token of `special` that ends a turn.
        pad: the token of `special` that ends a text, also used for padding.
    """

    template: Path
    special: tuple[str, ...] = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    added: tuple[str, ...] = (
        *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
    )
    end: str = "<|im_end|>"
    pad: str = "<|endoftext|>"


FAMILIES = {
    "qwen3_5_text": Family(BUNDLED / "hybrid.jinja"),
    "qwen3": Family(BUNDLED / "template.jinja"),
    "llama": Family(
        HERE / "llama3.jinja",
        special=(
            *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
            *("<|eom_id|>", "<|eot_id|>"),
        ),
        added=(),
        end="<|eot_id|>",
        pad="<|end_of_text|>",
    ),
}
"""Families by `model_type`."""


def shapes() -> dict[str, dict[str, Any]]:
    """Return the configurations by name."""
    text = (HERE / "shapes.yaml").read_text(encoding="utf-8")
    found = {name: config for name, config in yaml.safe_load(text).items() if not name.startswith(".")}
    for config in found.values():
        if "quantization_config" in config:
            # The gate projections are too narrow for blocks of 128, so they stay in bfloat16.
            config["quantization_config"]["modules_to_not_convert"] += [
                f"model.layers.{layer}.linear_attn.{gate}"
                for layer in range(config["num_hidden_layers"])
                if (layer + 1) % config["full_attention_interval"]
                for gate in ("in_proj_a", "in_proj_b")
            ]
    return found


def build_wide_tokenizer(family: Family, size: int) -> PreTrainedTokenizerBase:
    """Return the bundled models' tokenizer, extended to `size` entries. The family's control tokens are last.

    Encoding uses the same entries as the bundled tokenizer. The extra entries are pairs of its words and only
    matter for decoding: random weights sample them, and a grammar must allow or forbid each one.
    """
    from tokenizers import AddedToken, Tokenizer

    tokenizer = build_tokenizer(family.template.read_text(encoding="utf-8"))
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary: dict[str, int] = content["model"]["vocab"]
    words = sorted(word for word in vocabulary if (bare := word.lstrip("Ġ")).isalpha() and bare.isascii())
    pairs = [first + second for first, second in itertools.product(words, repeat=2)]
    random.Random(0).shuffle(pairs)
    free = size - len(family.special) - len(family.added)
    for pair in pairs:
        if len(vocabulary) == free:
            break
        vocabulary.setdefault(pair, len(vocabulary))
    wide = Tokenizer.from_str(json.dumps({**content, "added_tokens": []}))
    wide.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in family.special])
    wide.add_tokens([AddedToken(token, normalized=False, special=False) for token in family.added])
    tokenizer._tokenizer = wide
    tokenizer.eos_token, tokenizer.pad_token = family.end, family.pad
    return tokenizer


def recipe(shape: str) -> tuple[Write, tuple[Path, ...]]:
    """Return what fills a shape's folder, and the files that it depends on."""
    config = shapes()[shape]
    family = FAMILIES[config["model_type"]]

    def write(folder: Path) -> str:
        from transformers import __version__ as transformers_version

        print(f"filling the tokenizer up to {config['vocab_size']:,} entries", flush=True)
        tokenizer = build_wide_tokenizer(family, config["vocab_size"])
        tokenizer.model_max_length = config["max_position_embeddings"]
        tokenizer.save_pretrained(folder)
        content = {
            **config,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "transformers_version": transformers_version,
        }
        (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        return f"the shape of {shape}, no weights"

    return write, (Path(__file__), HERE / "shapes.yaml", family.template)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a published model's shape, without weights.")
    parser.add_argument("--shape", required=True, choices=shapes(), help="which model's")
    run(parser, recipe)
