"""Train the bundled model from scratch: corpus, tokenizer, weights.

    python -m models.tiny.train [--work DIR]
    python -m models.tiny.train --measure

The work folder keeps recorded runs and tokenizer for a second call. Remove it after a change of the recipe.
The same recipe and library versions give the same corpus. Weights differ in their last bits between machines.
`--measure` plays the served model without skills in the worlds of both splits of `env=babyai`, none of which
is in the corpus. Both print the figures of the model card, weights/README.md.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from models.tiny import training_corpus
from models.tiny.actor_examples import Example
from models.tiny.learning import train
from models.tiny.teachers import recorded_sleeps
from models.tiny.training_recipe import Recipe
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.results import load

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WEIGHTS = Path(__file__).with_name("weights")

CARD = "README.md"

COMMAND = (
    *("run", "env=babyai", "method=speedrunner", "model=tiny", "run.rollouts=200", "run.sleep_every=200"),
    *("run.eval_every=200", "run.test_episodes=30", "run.in_flight=32"),
)
"""The first batch covers the whole training split and the first evaluation covers the test split, so both
are played without skills."""


def make_corpus(recipe: Recipe, work: Path) -> tuple[ChatTokenizer, dict[str, list[Example]]]:
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
    for name, examples in sources.items():
        lengths = [len(each.ids) for each in examples]
        report(f"{name}: {len(lengths):,} examples, {sum(lengths):,} tokens, at most {max(lengths):,}")
    began = time.monotonic()
    model, losses = train(recipe, tokenizer, sources, report)
    for file in WEIGHTS.iterdir():
        if file.name != CARD:
            file.unlink()
    export(model, tokenizer, WEIGHTS)
    minutes = (time.monotonic() - began) / 60
    report(f"{model.num_parameters():,} parameters after {minutes:.0f} minutes; {'; '.join(losses)}")


def measure() -> None:
    """Play the committed model as `COMMAND`, and print its success and its costs without skills."""
    folder = Path(".cache/tiny-measured")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "speedrunner", *COMMAND, f"run.dir={folder}"], check=True)
    rows = [row for row in load(folder).episodes if row.score is not None and row.policy == 0]
    report(
        f"{fmean(row.score or 0.0 for row in rows):.1%} of {len(rows)} episodes,"
        f" {fmean(row.llm_calls for row in rows):.1f} calls and"
        f" {fmean(row.usage.completion for row in rows):.0f} output tokens in the mean"
    )


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
