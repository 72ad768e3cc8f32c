"""What the recipes in this folder share: the tokenizer, and model folders that appear in one step."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import corpus

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

HERE = Path(__file__).resolve().parent
SHARED = ("recipe.py", "corpus.py")
STAMP = "recipe.json"

SEED = 0
VOCABULARY = 2048
CONTEXT = 32_768
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")


@dataclass(frozen=True)
class Recipe:
    """How one model is made.

    Attributes:
        script: the recipe's own file here.
        template: its chat template here.
        build_model: draws the weights; gets the tokenizer, whose end-of-turn ids the model takes over.
    """

    script: str
    template: str
    build_model: Callable[[PreTrainedTokenizerBase], PreTrainedModel]

    def stamp(self) -> dict[str, str]:
        """The SHA-256 of each file that the model is made from."""
        files = (self.script, *SHARED, self.template)
        return {name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in files}

    def up_to_date(self, out: Path) -> bool:
        """Whether `out` was built from the recipe as it stands now."""
        stamp = out / STAMP
        return stamp.is_file() and json.loads(stamp.read_text(encoding="utf-8")) == self.stamp()

    def build(self, out: Path) -> None:
        """Write the model folder `out`, saying on one line each what is done.

        Raises:
            FileExistsError: `out` exists and is not a model of a recipe here.
        """
        if self.up_to_date(out):
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
            tokenizer = build_tokenizer((HERE / self.template).read_text(encoding="utf-8"))
            tokenizer.save_pretrained(work)
            print("drawing the weights", flush=True)
            model = self.build_model(tokenizer)
            model.save_pretrained(work)
            (work / STAMP).write_text(json.dumps(self.stamp(), indent=2) + "\n", encoding="utf-8")
            self._put_in_place(work, out)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        print(f"{out} is ready: {model.num_parameters():,} parameters, untrained", flush=True)

    def main(self) -> None:
        """The command line."""
        parser = argparse.ArgumentParser(description="Build a bundled CPU model (untrained).")
        parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write")
        # Unwinds, and so removes the unfinished folder.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        try:
            self.build(parser.parse_args().out.absolute())
        except (OSError, ValueError) as error:
            sys.exit(f"error: {error}")

    def _put_in_place(self, folder: Path, out: Path) -> None:
        """Rename a finished folder to `out`, in place of an older build."""
        old = folder.with_name(folder.name + "-old")
        if out.exists():
            out.rename(old)
        try:
            folder.rename(out)
        except OSError:
            if not self.up_to_date(out):  # otherwise another process has built the same in the meantime
                raise
        finally:
            shutil.rmtree(old, ignore_errors=True)


def build_tokenizer(chat_template: str) -> PreTrainedTokenizerBase:
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
        chat_template=chat_template,
    )
