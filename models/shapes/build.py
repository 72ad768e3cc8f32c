"""Writes the shape of a published model as a model folder without weights, for `load_format: dummy`.

    python models/shapes/build.py --shape NAME --out DIR

The configuration is the published one (text only). The tokenizer is the bundled models', filled up to the
true size of the vocabulary, so that sampling and grammars cost what they cost with the true one. DIR appears
by one rename, when all of it is there; a second call with the same recipe leaves it as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

BUNDLED = Path(__file__).resolve().parents[1] / "tiny"
sys.path.append(str(BUNDLED))

from recipe import ADDED, SPECIAL, build_tokenizer  # noqa: E402

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STAMP = "recipe.json"
SOURCES = (Path(__file__), BUNDLED / "recipe.py", BUNDLED / "corpus.py")

QWEN35: dict[str, Any] = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "vocab_size": 248_320,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "attn_output_gate": True,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262_144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000, "partial_rotary_factor": 0.25},
    "rms_norm_eps": 1e-6,
    "dtype": "bfloat16",
}
"""What all Qwen3.5 share: of four layers, three are gated delta nets and the fourth is full attention."""

QWEN35_27B = {
    **QWEN35,
    "hidden_size": 5120,
    "intermediate_size": 17_408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "linear_num_value_heads": 48,
    "tie_word_embeddings": False,
}

# The gates' projections are too narrow for blocks of 128 and stay in bfloat16.
FP8 = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": [
        "lm_head",
        "model.embed_tokens",
        *(
            f"model.layers.{layer}.linear_attn.{gate}"
            for layer in range(64)
            if (layer + 1) % 4
            for gate in ("in_proj_a", "in_proj_b")
        ),
    ],
}

QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "dtype": "bfloat16",
}

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3.5-27b": QWEN35_27B,
    "qwen3.5-27b-fp8": {**QWEN35_27B, "quantization_config": FP8},
    "qwen3.5-9b": {
        **QWEN35,
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "linear_num_value_heads": 32,
        "tie_word_embeddings": False,
    },
    "qwen3.5-4b": {
        **QWEN35,
        "hidden_size": 2560,
        "intermediate_size": 9216,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "linear_num_value_heads": 32,
        "tie_word_embeddings": True,
    },
    "qwen3-8b": {
        **QWEN3,
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "max_position_embeddings": 40_960,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000},
        "tie_word_embeddings": False,
    },
    "qwen3-4b-instruct": {
        **QWEN3,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "max_position_embeddings": 262_144,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5_000_000},
        "tie_word_embeddings": True,
    },
}

TEMPLATES = {"qwen3_5_text": BUNDLED / "hybrid.jinja", "qwen3": BUNDLED / "template.jinja"}


def build_wide_tokenizer(chat_template: str, size: int) -> PreTrainedTokenizerBase:
    """The bundled models' tokenizer with `size` entries, of which the control tokens are the last.

    Encoding finds the same entries as there. The further ones, pairs of its words, are for decoding: random
    weights choose them, and a grammar has to allow or forbid each.
    """
    from tokenizers import AddedToken, Tokenizer

    tokenizer = build_tokenizer(chat_template)
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary: dict[str, int] = content["model"]["vocab"]
    words = sorted(word for word in vocabulary if (bare := word.lstrip("Ġ")).isalpha() and bare.isascii())
    pairs = [first + second for first, second in itertools.product(words, repeat=2)]
    random.Random(0).shuffle(pairs)
    free = size - len(SPECIAL) - len(ADDED)
    for pair in pairs:
        if len(vocabulary) == free:
            break
        vocabulary.setdefault(pair, len(vocabulary))
    wide = Tokenizer.from_str(json.dumps({**content, "added_tokens": []}))
    wide.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    wide.add_tokens([AddedToken(token, normalized=False, special=False) for token in ADDED])
    if wide.get_vocab_size() != size:
        raise ValueError(f"the corpus yields {wide.get_vocab_size()} tokens, not {size}: give it more words")
    tokenizer._tokenizer = wide
    return tokenizer


def stamp(shape: str) -> dict[str, str]:
    """The SHA-256 of each file that the folder is made from."""
    files = (*SOURCES, TEMPLATES[SHAPES[shape]["model_type"]])
    return {"shape": shape, **{file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}}


def up_to_date(shape: str, out: Path) -> bool:
    """Whether `out` was built from the recipe as it stands now."""
    there = out / STAMP
    return there.is_file() and json.loads(there.read_text(encoding="utf-8")) == stamp(shape)


def build(shape: str, out: Path) -> None:
    """Write the folder `out`, saying on one line each what is done.

    Raises:
        FileExistsError: `out` exists and is not a shape.
    """
    if up_to_date(shape, out):
        print(f"{out} is up to date")
        return
    if out.exists() and not (out / STAMP).is_file():
        raise FileExistsError(
            f"{out} exists and was not built by this recipe: name another folder, or remove it"
        )
    from transformers import __version__ as transformers_version

    config = SHAPES[shape]
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        work.chmod(0o755)
        print(f"training a tokenizer, filled up to {config['vocab_size']:,} entries", flush=True)
        template = TEMPLATES[config["model_type"]].read_text(encoding="utf-8")
        tokenizer = build_wide_tokenizer(template, config["vocab_size"])
        tokenizer.model_max_length = config["max_position_embeddings"]
        tokenizer.save_pretrained(work)
        content = {
            **config,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "transformers_version": transformers_version,
        }
        (work / "config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        (work / STAMP).write_text(json.dumps(stamp(shape), indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        try:
            work.rename(out)
        except OSError:
            if not up_to_date(shape, out):  # otherwise another process has built the same in the meantime
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{out} is ready: the shape of {shape}, no weights", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write a published model's shape, without weights.")
    parser.add_argument("--shape", required=True, choices=SHAPES, help="which model's")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the model folder to write")
    given = parser.parse_args()
    try:
        build(given.shape, given.out.absolute())
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
