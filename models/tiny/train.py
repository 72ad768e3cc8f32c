"""Train the bundled model from scratch: corpus, tokenizer, weights.

    python -m models.tiny.train

The recipe is `training.yaml`: a small Qwen3, AdamW, a long linear decay. The same recipe and library versions
give the same corpus. Weights differ in their last bits between machines. The model card, weights/README.md,
has the figures that this prints, and the command that measures the model.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from models.tiny import training_corpus
from models.tiny.actor_examples import Example
from models.tiny.teachers import recorded_sleeps
from models.tiny.training_corpus import Vocabulary
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.config.schema import AtLeastOne

if TYPE_CHECKING:
    from transformers import PreTrainedModel


POOL = 1024
"""Number of examples that are sorted by length together, to keep padding small."""

REPORTED_EVERY = 200
"""Steps between two lines of progress."""

WARM_UP = 100
"""Warm-up steps until a stage reaches its learning rate."""


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stage of the training."""

    tokens: AtLeastOne
    batch: AtLeastOne
    rate: float
    constant: float
    mix: dict[str, float]


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `training.yaml`."""

    seed: int
    context: int
    threads: int
    vocabulary: Vocabulary
    corpus: dict[str, AtLeastOne]
    network: dict[str, int | float]
    embedding_deviation: float
    attention_gain: float
    stages: list[Stage]

    @classmethod
    def read(cls) -> Recipe:
        """Read `training.yaml`. Raises `msgspec.ValidationError`."""
        return msgspec.yaml.decode(Path(__file__).with_name("training.yaml").read_bytes(), type=cls)


def batches(sources: Mapping[str, Sequence[Example]], stage: Stage, seed: int) -> Iterator[list[Example]]:
    """Yield batches endlessly. Each source is read in shuffled passes."""
    rng = random.Random(seed)
    names, shares = list(stage.mix), list(stage.mix.values())
    orders: dict[str, list[int]] = {name: [] for name in names}

    def draw(name: str) -> Example:
        if not orders[name]:
            orders[name] = rng.sample(range(len(sources[name])), len(sources[name]))
        return sources[name][orders[name].pop()]

    while True:
        pool = sorted(
            (draw(name) for name in rng.choices(names, shares, k=POOL)), key=lambda example: len(example.ids)
        )
        cut: list[list[Example]] = [[]]
        for example in pool:
            if cut[-1] and len(example.ids) * (len(cut[-1]) + 1) > stage.batch:
                cut.append([])
            cut[-1].append(example)
        rng.shuffle(cut)
        yield from cut


def new_model(recipe: Recipe, tokenizer: ChatTokenizer) -> PreTrainedModel:
    """Return a Qwen3 with random weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    own = tokenizer.huggingface
    torch.manual_seed(recipe.seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(own),
            max_position_embeddings=recipe.context,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=own.eos_token_id,
            pad_token_id=own.pad_token_id,
            **recipe.network,
        )
    )
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(0, recipe.embedding_deviation)
        for name, weight in model.named_parameters():
            if "q_norm" in name or "k_norm" in name:
                weight.fill_(recipe.attention_gain)
    return model


def train(
    recipe: Recipe, tokenizer: ChatTokenizer, sources: Mapping[str, Sequence[Example]]
) -> PreTrainedModel:
    """Train a new model through all stages, and print the progress."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    torch.set_num_threads(recipe.threads)
    model = new_model(recipe, tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.01)
    pad = tokenizer.huggingface.pad_token_id
    for number, stage in enumerate(recipe.stages):
        drawn = batches(sources, stage, recipe.seed + number)
        step = read = 0
        recent: list[float] = []
        while read < stage.tokens:
            batch = next(drawn)
            read += sum(len(example.ids) for example in batch)
            # Both are right-padded and of shape (examples, tokens); `learnt` marks the tokens to predict.
            given, marks = ([torch.tensor(row) for row in rows] for rows in zip(*batch, strict=True))
            ids = pad_sequence(given, batch_first=True, padding_value=pad)
            learnt = pad_sequence(marks, batch_first=True)
            left = (1 - read / stage.tokens) / (1 - stage.constant)
            share = min((step + 1) / WARM_UP, 1.0) * min(max(left, 0.02), 1.0)  # warm-up, then linear decay
            for group in optimizer.param_groups:
                group["lr"] = stage.rate * share
            # Attention needs no padding mask: it is causal, and the padding is at the end.
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
            wanted = learnt[:, 1:]
            logits = model.lm_head(hidden[:, :-1][wanted])
            batch_loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:][wanted])
            optimizer.zero_grad()
            batch_loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            recent.append(float(batch_loss.detach()))
            if step % REPORTED_EVERY == 0 or read >= stage.tokens:
                share, loss = min(read / stage.tokens, 1.0), sum(recent) / len(recent)
                print(f"stage {number + 1}: {share:4.0%}, loss {loss:.4f}", flush=True)
                recent = []
    return model


WEIGHTS = Path(__file__).with_name("weights")

WORK = Path(".cache/tiny")
"""Folder of the recorded runs and the tokenizer; emptied at the start."""


def export(model: PreTrainedModel, tokenizer: ChatTokenizer, out: Path) -> None:
    """Write the model folder, with weights in bfloat16."""
    from transformers import GenerationConfig

    own = tokenizer.huggingface
    model.generation_config = GenerationConfig(
        eos_token_id=[own.eos_token_id, own.pad_token_id], pad_token_id=own.pad_token_id
    )
    model.bfloat16().save_pretrained(out)
    own.save_pretrained(out)


def main() -> None:
    """Create the corpus, train, and replace the committed weights."""
    recipe, runs, folder = Recipe.read(), WORK / "runs", WORK / "corpus"
    shutil.rmtree(WORK, ignore_errors=True)
    recorded_sleeps.record(runs, recipe.corpus["sleeps"], recipe.seed)
    training_corpus.make_tokenizer(recipe.vocabulary, list(recipe.corpus), runs, recipe.context, folder)
    tokenizer = ChatTokenizer(folder)
    sources = training_corpus.make(recipe.corpus, runs, tokenizer)
    model = train(recipe, tokenizer, sources)
    export(model, tokenizer, WEIGHTS)
    print(f"{model.num_parameters():,} parameters")


if __name__ == "__main__":
    main()
