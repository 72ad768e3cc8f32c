"""Code shared by the recipes of model folders: the tokenizer, and atomic creation of folders."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HERE = Path(__file__).resolve().parent
TOKENIZER = HERE / "tokenizer.json"
STAMP = "recipe.json"

SEED = 0
VOCABULARY = 2048
CONTEXT = 32_768

Write = Callable[[Path], str]
"""Fills an empty folder, prints one line per step, and returns a description of the content."""


def build(out: Path, write: Write, sources: Sequence[Path], shape: str = "") -> None:
    """Create the folder `out`, by one rename when it is complete. An up-to-date folder is left as it is.

    Args:
        sources: files that it depends on, in addition to those shared by all recipes.
        shape: name of the shape that it has, if the recipe knows several.

    Raises `FileExistsError`: `out` exists and was not built by a recipe.
    """
    files = (*sources, HERE / "recipe.py", TOKENIZER)
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    stamp = json.dumps({"shape": shape, **digests}, indent=2) + "\n"

    def has_stamp() -> bool:
        return (out / STAMP).is_file() and (out / STAMP).read_text(encoding="utf-8") == stamp

    if has_stamp():
        return
    if out.exists() and not (out / STAMP).is_file():
        raise FileExistsError(
            f"{out} exists and was not built by this recipe: name another folder, or remove it"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        work.chmod(0o755)
        holds = write(work)
        (work / STAMP).write_text(stamp, encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        work.rename(out)
    except OSError:
        if not has_stamp():  # otherwise another process has just built the same folder
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{out} is ready: {holds}", flush=True)


def run(parser: argparse.ArgumentParser, recipe: Callable[..., tuple[Write, Sequence[Path]]]) -> None:
    """Run a recipe's command line: `--out DIR` and the options of `parser`.

    Args:
        recipe: called with these options; returns the arguments of `build`.
    """
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the model folder to write")
    options = vars(parser.parse_args())
    out = options.pop("out").absolute()
    # Exit by an exception, which removes the unfinished folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        build(out, *recipe(**options), **options)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


def run_bundled(script: str, template: str, architecture: str, **config: Any) -> None:
    """Run the recipe of a bundled model with random weights.

    Args:
        script: path of the recipe's script.
        template: file name of the chat template in the folder of this module.
        architecture: name of a causal language model's class in `transformers`.
        config: fields of its configuration that differ from the defaults.
    """

    def write(folder: Path) -> str:
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        tokenizer = build_tokenizer((HERE / template).read_text(encoding="utf-8"))
        tokenizer.save_pretrained(folder)
        print("drawing the weights", flush=True)
        end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        kind = getattr(transformers, architecture)
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

    parser = argparse.ArgumentParser(description="Build a bundled CPU model (untrained).")
    run(parser, lambda: (write, (Path(script), HERE / template)))


def build_tokenizer(chat_template: str) -> PreTrainedTokenizerBase:
    """Return the random models' tokenizer, a byte-level BPE of `VOCABULARY` entries, with a chat template.

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
        chat_template=chat_template,
    )
