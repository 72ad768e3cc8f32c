"""Train the bundled model from scratch: corpus, tokenizer, weights.

    python -m models.tiny.train

The same recipe and library versions give the same corpus. Weights differ in their last bits between machines.
The model card, weights/README.md, has the figures that this prints, and the command that measures the model.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from models.tiny import training_corpus
from models.tiny.actor_examples import Example
from models.tiny.learning import Recipe, train
from models.tiny.teachers import recorded_sleeps
from serving.tokens.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WEIGHTS = Path(__file__).with_name("weights")

WORK = Path(".cache/tiny")
"""Folder of the recorded runs and the tokenizer; emptied at the start."""


def make_corpus(recipe: Recipe, work: Path) -> tuple[ChatTokenizer, dict[str, list[Example]]]:
    """Record the sleeps, build the tokenizer and create the examples of all sources in a new folder."""
    runs, folder = work / "runs", work / "corpus"
    recorded_sleeps.record(runs, recipe.corpus["sleeps"], recipe.seed)
    training_corpus.make_tokenizer(recipe.vocabulary, list(recipe.corpus), runs, recipe.context, folder)
    tokenizer = ChatTokenizer(folder)
    return tokenizer, training_corpus.make(recipe.corpus, runs, tokenizer)


def export(model: PreTrainedModel, tokenizer: ChatTokenizer, out: Path) -> None:
    """Write the model folder, with weights in bfloat16."""
    from transformers import GenerationConfig

    own = tokenizer.huggingface
    model.generation_config = GenerationConfig(
        eos_token_id=[own.eos_token_id, own.pad_token_id], pad_token_id=own.pad_token_id
    )
    model.cpu().bfloat16().save_pretrained(out)
    own.save_pretrained(out)


def main() -> None:
    """Create the corpus, train, and replace the committed weights."""
    recipe = Recipe.read()
    shutil.rmtree(WORK, ignore_errors=True)
    tokenizer, sources = make_corpus(recipe, WORK)
    model = train(recipe, tokenizer, sources)
    export(model, tokenizer, WEIGHTS)
    print(f"{model.num_parameters():,} parameters")


if __name__ == "__main__":
    main()
