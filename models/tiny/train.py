"""Trains the bundled model from scratch: corpus, tokenizer, weights.

    python -m models.tiny.train [--work DIR]

The work folder keeps intermediate results, so a second call resumes where the first stopped. The same recipe
and library versions give the same corpus. Weights differ in their last bits between machines.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import time
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from models.tiny import card, training_corpus
from models.tiny.card import Stamp
from models.tiny.learning import Progress, train
from models.tiny.teachers import recorded_sleeps
from models.tiny.training_corpus import Damaged, Examples, check_file
from models.tiny.training_recipe import Recipe
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.results import StorageError
from speedrunner.workers.env_worker import WorkerError
from speedrunner.workers.sandbox.settings import SandboxError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class OtherRecipe(Exception):
    """A work folder was created by another recipe."""


def open_work(work: Path) -> Stamp:
    """Create the work folder and return its stamp. Raises `OtherRecipe` if the folder was created with
    another recipe, other project texts or other library versions."""
    work.mkdir(parents=True, exist_ok=True)
    stamp, now = work / "stamp.json", Stamp.now()
    if not any(work.iterdir()):
        unfinished = stamp.with_suffix(".part")
        unfinished.write_bytes(msgspec.json.encode(now))
        unfinished.rename(stamp)
    begun = None
    if stamp.exists():
        with check_file(stamp):
            begun = msgspec.json.decode(stamp.read_bytes(), type=Stamp)
    if begun != now:
        raise OtherRecipe(
            f"{work} holds what another recipe, project or library has made: remove it, or name another"
            " folder with --work"
        )
    return now


def make_corpus(recipe: Recipe, work: Path) -> tuple[ChatTokenizer, dict[str, Examples]]:
    """Record the sleeps, build the tokenizer and create the examples of all sources."""
    runs, folder = work / "runs", work / "corpus"
    recorded_sleeps.record(runs, recipe.corpus["sleeps"], recipe.seed)
    if not folder.is_dir():
        tell("making the tokenizer")
        training_corpus.make_tokenizer(recipe.vocabulary, list(recipe.corpus), runs, recipe.context, folder)
    with check_file(folder):
        tokenizer = ChatTokenizer(folder)
    return tokenizer, training_corpus.make(recipe.corpus, runs, folder, tell)


def export(model: PreTrainedModel, tokenizer: ChatTokenizer, out: Path) -> None:
    """Write the model folder, with weights in bfloat16. Raises `OSError`."""
    from safetensors import SafetensorError
    from transformers import GenerationConfig

    own = tokenizer.huggingface
    model.generation_config = GenerationConfig(
        eos_token_id=[own.eos_token_id, own.pad_token_id], pad_token_id=own.pad_token_id
    )
    try:
        model.cpu().bfloat16().save_pretrained(out)
    except SafetensorError as error:  # for example, a full disk
        raise OSError(f"{out} could not be written: {error}") from error
    own.save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)  # safetensors creates files that only their owner can read


def tell(line: str) -> None:
    """Print a line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def facts(
    stamp: Stamp, model: PreTrainedModel, sources: dict[str, Examples], at: Progress, work: Path
) -> card.Facts:
    """Return the card's facts about a model that was just exported to `work / "out"`."""
    return card.Facts(
        trained=date.fromtimestamp((work / "training.pt").stat().st_mtime).isoformat(),
        made_of=stamp,
        files=card.files(work / "out"),
        corpus={name: (len(each), len(each.ids), each.longest) for name, each in sources.items()},
        weights=model.num_parameters(),
        vocabulary=model.config.vocab_size,
        minutes=at.seconds / 60,
        losses=at.losses,
    )


def run(recipe: Recipe, work: Path) -> None:
    """Create the corpus, train, and replace the committed weights."""
    stamp = open_work(work)
    tokenizer, sources = make_corpus(recipe, work)
    for name, examples in sources.items():
        learnt = int(examples.learnt.sum())
        tell(f"{name}: {len(examples):,} examples, {len(examples.ids):,} tokens, {learnt:,} learnt")
    model, at = train(recipe, tokenizer, sources, work, tell)
    made, there = work / "out", card.WEIGHTS.with_suffix(".part")
    export(model, tokenizer, made)
    found = facts(stamp, model, sources, at, work)
    if (card.WEIGHTS / card.FACTS).is_file() and (before := card.read()).files == found.files:
        found = msgspec.structs.replace(found, measured=before.measured)
    card.write(made, found)
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(made, there)
    shutil.rmtree(card.WEIGHTS, ignore_errors=True)
    there.rename(card.WEIGHTS)
    tell(f"{card.WEIGHTS} is ready; `python -m models.tiny.evaluate` measures it")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m models.tiny.train", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--work", type=Path, default=Path(".cache/tiny"), metavar="DIR", help="what is made on the way"
    )
    if importlib.util.find_spec("accelerate") is None:
        sys.exit("error: accelerate is not installed: `make venv` installs it, or pip install accelerate")
    try:
        run(Recipe.read(), parser.parse_args().work)
    except msgspec.MsgspecError as error:
        sys.exit(f"error: models/tiny/training.yaml: {error}")
    except (OtherRecipe, Damaged, WorkerError, SandboxError, StorageError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on")


if __name__ == "__main__":
    main()
