"""Builds the bundled CPU model: a small Qwen3 with its own tokenizer and chat template, as a model folder.

    python models/tiny/build.py --out DIR

The weights are random. The same recipe and library versions give the same bytes. DIR appears by one rename,
when all of it is there; a second call with the same recipe leaves it as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import corpus

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

HERE = Path(__file__).resolve().parent
RECIPE = (HERE / "build.py", HERE / "corpus.py", HERE / "template.jinja")
STAMP = "recipe.json"

SEED = 0
VOCABULARY = 2048
CONTEXT = 32_768
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")


def build_tokenizer() -> PreTrainedTokenizerBase:
    """Train the byte-level BPE tokenizer on the corpus; the control tokens take its last ids.

    Raises:
        ValueError: the corpus is too small for `VOCABULARY` entries.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    # Every digit is a token of its own, as in Qwen3: numbers are then read the same way wherever they stand.
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(ADDED),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus.documents(), trainer)
    bpe.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    bpe.add_tokens([AddedToken(token, normalized=False, special=False) for token in ADDED])
    if bpe.get_vocab_size() != VOCABULARY:
        raise ValueError(
            f"the corpus yields {bpe.get_vocab_size()} tokens, not {VOCABULARY}: give it more words"
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=(HERE / "template.jinja").read_text(encoding="utf-8"),
    )


def build_model(tokenizer: PreTrainedTokenizerBase) -> Qwen3ForCausalLM:
    """A randomly initialised Qwen3 of about 2M parameters whose end-of-turn ids are the tokenizer's."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
        dtype="float32",
    )
    torch.manual_seed(SEED)
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=[end, pad], pad_token_id=pad, do_sample=True)
    return model


def recipe() -> dict[str, str]:
    """The SHA-256 of each file that the model is made from."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in RECIPE}


def up_to_date(out: Path) -> bool:
    """Whether `out` was built from the recipe as it stands now."""
    stamp = out / STAMP
    return stamp.is_file() and json.loads(stamp.read_text(encoding="utf-8")) == recipe()


def put_in_place(folder: Path, out: Path) -> None:
    """Rename a finished folder to `out`, in place of an older build."""
    old = folder.with_name(folder.name + "-old")
    if out.exists():
        out.rename(old)
    try:
        folder.rename(out)
    except OSError:
        if not up_to_date(out):  # otherwise another process has built the same in the meantime
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def build(out: Path) -> None:
    """Write the model folder `out`, saying on one line each what is done.

    Raises:
        FileExistsError: `out` exists and is not a model of this recipe.
    """
    if up_to_date(out):
        print(f"{out} is up to date")
        return
    if out.exists() and not (out / STAMP).is_file():
        raise FileExistsError(
            f"{out} exists and was not built by this recipe: name another folder, or remove it"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        work.chmod(0o755)
        print(f"training a byte-level BPE tokenizer of {VOCABULARY:,} entries", flush=True)
        tokenizer = build_tokenizer()
        tokenizer.save_pretrained(work)
        print("drawing the weights", flush=True)
        model = build_model(tokenizer)
        model.save_pretrained(work)
        (work / STAMP).write_text(json.dumps(recipe(), indent=2) + "\n", encoding="utf-8")
        put_in_place(work, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{out} is ready: {model.num_parameters():,} parameters, untrained", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build the bundled CPU model (untrained).")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the model folder to write")
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit("stopped")
    )  # unwinds, and so removes the unfinished folder
    try:
        build(parser.parse_args().out.absolute())
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
