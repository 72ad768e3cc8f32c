"""Train the bundled model from scratch: corpus, tokenizer, weights, card.

    python -m models.tiny.train [--work DIR]
    python -m models.tiny.train --measure

The work folder keeps recorded runs and tokenizer for a second call. Remove it after a change of the recipe.
The same recipe and library versions give the same corpus. Weights differ in their last bits between machines.
`--measure` plays the served model without skills in the worlds of both splits of `env=babyai`, none of which
is in the corpus, and writes the results into the card.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from models.tiny import card, training_corpus
from models.tiny.learning import train
from models.tiny.teachers import recorded_sleeps
from models.tiny.training_corpus import Examples
from models.tiny.training_recipe import Recipe
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.results import load

if TYPE_CHECKING:
    from transformers import PreTrainedModel

COMMAND = (
    *("run", "env=babyai", "method=speedrunner", "model=tiny", "run.rollouts=200", "run.sleep_every=200"),
    *("run.eval_every=200", "run.test_episodes=30", "run.in_flight=32"),
)
"""The first batch covers the whole training split and the first evaluation covers the test split, so both
are played without skills."""


def make_corpus(recipe: Recipe, work: Path) -> tuple[ChatTokenizer, dict[str, Examples]]:
    """Record the sleeps, build the tokenizer and create the examples of all sources."""
    runs, folder = work / "runs", work / "corpus"
    recorded_sleeps.record(runs, recipe.corpus["sleeps"], recipe.seed)
    if not folder.is_dir():
        report("making the tokenizer")
        training_corpus.make_tokenizer(recipe.vocabulary, list(recipe.corpus), runs, recipe.context, folder)
    return ChatTokenizer(folder), training_corpus.make(recipe.corpus, runs, folder, report)


def export(model: PreTrainedModel, tokenizer: ChatTokenizer, out: Path) -> None:
    """Write the model folder, with weights in bfloat16."""
    from transformers import GenerationConfig

    own = tokenizer.huggingface
    model.generation_config = GenerationConfig(
        eos_token_id=[own.eos_token_id, own.pad_token_id], pad_token_id=own.pad_token_id
    )
    model.cpu().bfloat16().save_pretrained(out)
    own.save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)  # safetensors creates files that only their owner can read


def report(line: str) -> None:
    """Print a line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def run(recipe: Recipe, work: Path) -> None:
    """Create the corpus, train, and replace the committed weights."""
    work.mkdir(parents=True, exist_ok=True)
    tokenizer, sources = make_corpus(recipe, work)
    began = time.monotonic()
    model, losses = train(recipe, tokenizer, sources, report)
    minutes = (time.monotonic() - began) / 60
    shutil.rmtree(card.WEIGHTS, ignore_errors=True)
    export(model, tokenizer, card.WEIGHTS)
    found = card.Facts(
        trained=date.today().isoformat(),
        versions={name: version(name) for name in card.LIBRARIES},
        files=card.files(card.WEIGHTS),
        corpus={name: (len(each), len(each.ids), each.longest) for name, each in sources.items()},
        weights=model.num_parameters(),
        vocabulary=model.config.vocab_size,
        minutes=minutes,
        losses=losses,
    )
    card.write(card.WEIGHTS, found)
    report(f"{card.WEIGHTS} is ready; `python -m models.tiny.train --measure` measures it")


def measure() -> None:
    """Play the committed model as `COMMAND`, and write the results into its card."""
    facts = card.read()
    folder = Path(".cache/tiny-measured", card.digest(card.WEIGHTS / "model.safetensors")[:12])
    subprocess.run([sys.executable, "-m", "speedrunner", *COMMAND, f"run.dir={folder}"], check=True)
    rows = [row for row in load(folder).episodes if row.score is not None and row.policy == 0]
    found = card.Measured(
        date=date.today().isoformat(),
        command=" ".join(["speedrunner", *COMMAND]),
        episodes=len(rows),
        success=round(fmean(row.score for row in rows if row.score is not None), 4),
        llm_calls=round(fmean(row.llm_calls for row in rows), 2),
        output_tokens=round(fmean(row.usage.completion for row in rows), 1),
    )
    card.write(card.WEIGHTS, msgspec.structs.replace(facts, measured=found))
    low, high = facts.success_range
    print(f"{found.success:.1%} of {found.episodes} episodes")
    if not low <= found.success <= high:
        sys.exit(f"error: the card allows {low:.0%} to {high:.0%}: train again, or change its range")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m models.tiny.train", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--work", type=Path, default=Path(".cache/tiny"), metavar="DIR", help="work folder")
    parser.add_argument("--measure", action="store_true", help="measure the committed model instead")
    given = parser.parse_args()
    if given.measure:
        measure()
    else:
        run(Recipe.read(), given.work)


if __name__ == "__main__":
    main()
