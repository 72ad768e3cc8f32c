"""Builds the folder of a bundled CPU model, or of a published shape.

    python models/random/build.py MODEL --out DIR

- The bundled models with random weights are in models/random/models.yaml.
- A shape of models/shapes/shapes.yaml is a published configuration without weights, for `load_format: dummy`.

All have one tokenizer, for shapes with the published number of entries. The same sources and library versions
give the same bytes. A single rename creates DIR when the folder is complete. A second call with the same
sources changes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HERE = Path(__file__).resolve().parent
TOKENIZER, MODELS = HERE / "tokenizer.json", HERE / "models.yaml"
SHAPES = HERE.parent / "shapes" / "shapes.yaml"
STAMP = "recipe.json"

SEED = 0
VOCABULARY = 2048
CONTEXT = 32_768


def read_yaml(file: Path) -> dict[str, Any]:
    """Return a file's mapping."""
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


def build(out: Path, model: str) -> None:
    """Create the folder `out` of a model or shape. An up-to-date folder is left as it is.

    Raises `FileExistsError`: `out` exists and was not built here.
    """
    sources = (Path(__file__), TOKENIZER, MODELS, SHAPES, *sorted(HERE.parent.glob("*/*.jinja")))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    stamp = json.dumps({"model": model, "sources": digest}) + "\n"

    def is_current() -> bool:
        return (out / STAMP).is_file() and (out / STAMP).read_text(encoding="utf-8") == stamp

    if is_current():
        return
    if out.exists() and not (out / STAMP).is_file():
        raise FileExistsError(f"{out} exists and was not built here: name another folder, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as place:
        work = Path(place) / out.name
        work.mkdir()
        content = write_model(work, model) if model in read_yaml(MODELS) else write_shape(work, model)
        (work / STAMP).write_text(stamp, encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        try:
            work.rename(out)
        except OSError:
            if not is_current():  # otherwise another process has just built the same folder
                raise
    print(f"{out} is ready: {content}", flush=True)


def write_model(folder: Path, name: str) -> str:
    """Write a bundled model into an empty folder; return a description."""
    import torch
    import transformers

    known = read_yaml(MODELS)[name]
    config = known["config"]
    transformers.utils.logging.disable_progress_bar()
    tokenizer = build_tokenizer(HERE / known["template"])
    tokenizer.save_pretrained(folder)
    print("drawing the weights", flush=True)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    kind = getattr(transformers, known["architecture"])
    torch.manual_seed(SEED)
    model = kind(
        kind.config_class(
            vocab_size=VOCABULARY,
            max_position_embeddings=CONTEXT,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=pad,
            **config,
        )
    ).to(getattr(torch, config["dtype"]))
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=[end, pad], pad_token_id=pad, do_sample=True
    )
    model.save_pretrained(folder)
    return f"{model.num_parameters():,} parameters, untrained"


def build_tokenizer(template: Path) -> PreTrainedTokenizerBase:
    """Return the bundled models' tokenizer, a byte-level BPE of `VOCABULARY` entries, with a chat template.

    It was trained once, on a seeded sample of game texts, prompts, code and tool calls. Every digit is a
    separate token, as in Qwen3, so a number has the same tokens in every context. The control tokens have the
    last ids.
    """
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_file=str(TOKENIZER),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=template.read_text(encoding="utf-8"),
    )


def shapes() -> dict[str, dict[str, Any]]:
    """Return the configurations of the shapes by name."""
    found: dict[str, dict[str, Any]] = read_yaml(SHAPES)["shapes"]
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


def write_shape(folder: Path, name: str) -> str:
    """Write a shape into an empty folder; return a description."""
    from transformers import __version__ as transformers_version

    config = shapes()[name]
    print(f"filling the tokenizer up to {config['vocab_size']:,} entries", flush=True)
    tokenizer = build_wide_tokenizer(config["model_type"], config["vocab_size"])
    tokenizer.model_max_length = config["max_position_embeddings"]
    tokenizer.save_pretrained(folder)
    content = {
        **config,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "transformers_version": transformers_version,
    }
    (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return f"the shape of {name}, no weights"


def build_wide_tokenizer(model_type: str, size: int) -> PreTrainedTokenizerBase:
    """Return the bundled models' tokenizer, extended to `size` entries. The model type's control tokens are
    last.

    Encoding uses the same entries as the bundled tokenizer. The extra entries are pairs of its words and only
    matter for decoding: random weights sample them, and a grammar must allow or forbid each one.
    """
    from tokenizers import AddedToken, Tokenizer

    family = read_yaml(SHAPES)["families"][model_type]
    tokenizer = build_tokenizer(HERE.parent / family["template"])
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary: dict[str, int] = content["model"]["vocab"]
    words = sorted(word for word in vocabulary if (bare := word.lstrip("Ġ")).isalpha() and bare.isascii())
    pairs = [first + second for first, second in itertools.product(words, repeat=2)]
    random.Random(SEED).shuffle(pairs)
    free = size - len(family["special"]) - len(family["added"])
    for pair in pairs:
        if len(vocabulary) == free:
            break
        vocabulary.setdefault(pair, len(vocabulary))
    wide = Tokenizer.from_str(json.dumps({**content, "added_tokens": []}))
    wide.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in family["special"]]
    )
    wide.add_tokens([AddedToken(token, normalized=False, special=False) for token in family["added"]])
    tokenizer._tokenizer = wide
    tokenizer.eos_token, tokenizer.pad_token = family["end"], family["pad"]
    return tokenizer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = [*read_yaml(MODELS), *shapes()]
    parser.add_argument("model", choices=known, metavar="MODEL", help="a model or shape")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the model folder to write")
    options = parser.parse_args()
    # Exit by an exception, which removes the unfinished folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        build(options.out.absolute(), options.model)
    except OSError as error:
        sys.exit(f"error: {error}")
