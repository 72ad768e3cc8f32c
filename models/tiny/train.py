"""Trains the bundled model from scratch: corpus, tokenizer, weights.

    python -m models.tiny.train [--out DIR] [--work DIR]

What is made on the way stays in the work folder, so that a second call goes on where the first was stopped.
The same recipe and library versions give the same corpus; weights differ in their last bits between machines.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from models.tiny import card, corpus
from models.tiny.corpus import Examples, Vocabulary
from models.tiny.learning import Stage, batches, losses, padded
from models.tiny.teachers import sleeps
from models.tiny.vocabulary import THINGS
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.hosts.host import HostError
from speedrunner.sandbox.settings import SandboxError
from speedrunner.store.files import StorageError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

HERE = Path(__file__).resolve().parent
SAVED_EVERY, TOLD_EVERY = 1000, 200
"""Steps."""


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`config.yaml`.

    Attributes:
        context: tokens that the model is made for.
        corpus: examples by source; of `sleeps`, runs that are recorded.
        network: fields of Qwen3's configuration, and how two kinds of weights begin.
        threads: of one step; more than one gains nothing at this size.
    """

    seed: int
    context: int
    threads: int
    vocabulary: Vocabulary
    corpus: dict[str, int]
    network: dict[str, Any]
    stages: list[Stage]

    @classmethod
    def read(cls) -> Recipe:
        """The file as it stands."""
        return msgspec.yaml.decode((HERE / "config.yaml").read_bytes(), type=cls)


class OtherRecipe(Exception):
    """A work folder holds what another recipe has made."""


def open_work(work: Path) -> None:
    """Make the work folder, or make sure that it is this recipe's. Raises `OtherRecipe`."""
    work.mkdir(parents=True, exist_ok=True)
    stamp, now = work / "recipe.json", msgspec.json.encode(card.recipe_files())
    if not stamp.exists() and not any(work.iterdir()):
        stamp.write_bytes(now)
    if not stamp.exists() or stamp.read_bytes() != now:
        raise OtherRecipe(
            f"{work} holds what another recipe has made: remove it, or name another folder with --work"
        )


def make_corpus(recipe: Recipe, work: Path) -> tuple[ChatTokenizer, dict[str, Examples]]:
    """Play what is to be learnt, make the tokenizer, write all down in its ids."""
    runs, folder = work / "runs", work / "corpus"
    sleeps.record(runs, recipe.corpus["sleeps"], recipe.seed)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "tokenizer_config.json").is_file():
        tell("making the tokenizer")
        corpus.make_tokenizer(recipe.vocabulary, list(recipe.corpus), runs, recipe.context, folder)
    return ChatTokenizer(folder), corpus.make(recipe.corpus, runs, folder, tell)


def new_model(recipe: Recipe, tokenizer: ChatTokenizer) -> PreTrainedModel:
    """A Qwen3 with weights drawn at random."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = dict(recipe.network)
    deviation, gain = shape.pop("embedding_deviation"), shape.pop("attention_gain")
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
            **shape,
        )
    )
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(0, deviation)
        for name, weight in model.named_parameters():
            if "q_norm" in name or "k_norm" in name:
                weight.fill_(gain)
    return model


class Told:
    """Mean losses since they were last told, by kind of token."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        import torch

        texts = [tokenizer.decode([token]).strip() for token in range(len(tokenizer.huggingface))]
        kinds = ["number" if text.isdigit() else "thing" if text in THINGS else "other" for text in texts]
        self._names = ["number", "thing", "other"]
        self._kind = torch.tensor([self._names.index(kind) for kind in kinds])
        self._sums = torch.zeros(3)
        self._counts = torch.zeros(3)

    def add(self, loss: torch.Tensor, tokens: torch.Tensor) -> None:
        """Count one step's."""
        kinds = self._kind[tokens.cpu()]
        self._sums.index_add_(0, kinds, loss.detach().float().cpu())
        self._counts.index_add_(0, kinds, (kinds >= 0).float())

    def line(self) -> str:
        """Say them, and begin anew."""
        means = self._sums / self._counts.clamp(min=1)
        told = ", ".join(f"{name} {mean:.4f}" for name, mean in zip(self._names, means, strict=True))
        mean = float(self._sums.sum() / self._counts.sum().clamp(min=1))
        self._sums.zero_()
        self._counts.zero_()
        return f"loss {mean:.4f} ({told})"


class Progress(msgspec.Struct):
    """How far a training is.

    Attributes:
        stage, step, read: the stage that it is in, its steps, and the tokens that they read.
        seconds: that all steps took.
        losses: the last line of each stage.
    """

    stage: int = 0
    step: int = 0
    read: int = 0
    seconds: float = 0.0
    losses: list[str] = []


def train(
    recipe: Recipe, tokenizer: ChatTokenizer, sources: dict[str, Examples], work: Path
) -> tuple[PreTrainedModel, Progress]:
    """Train through all stages, or go on where a training was stopped."""
    import torch
    from accelerate import Accelerator  # type: ignore[import-untyped]

    torch.set_num_threads(recipe.threads)
    accelerator = Accelerator()
    model = new_model(recipe, tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    bare = accelerator.unwrap_model(model)
    saved, told, at = work / "training.pt", Told(tokenizer), Progress()
    if saved.is_file():
        state = torch.load(saved, map_location=accelerator.device)
        at = msgspec.convert(state["progress"], Progress)
        bare.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        tell(f"going on with stage {at.stage + 1}, step {at.step}")
    pad = tokenizer.huggingface.pad_token_id
    while at.stage < len(recipe.stages):
        stage, line = recipe.stages[at.stage], ""
        drawn = batches(sources, stage, recipe.seed + at.stage)
        for _ in range(at.step):
            next(drawn)
        since, told_at = time.monotonic(), at.read
        while at.read < stage.tokens:
            batch = next(drawn)
            at.read += sum(len(each.ids) for each in batch)
            ids, learnt = (each.to(accelerator.device) for each in padded(batch, pad))
            for group in optimizer.param_groups:
                group["lr"] = stage.rate * stage.share_of_rate(at.step, at.read)
            loss, tokens = losses(model, ids, learnt)
            optimizer.zero_grad()
            accelerator.backward(loss.mean())
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            at.step += 1
            told.add(loss, tokens)
            if at.step % TOLD_EVERY == 0:
                took = time.monotonic() - since
                speed, line = (at.read - told_at) / took, told.line()
                part, left = min(at.read / stage.tokens, 1.0), (stage.tokens - at.read) / speed / 60
                tell(f"stage {at.stage + 1}: {part:4.0%}, {line}, {speed:,.0f} tokens/s, {left:.0f} min left")
                at.seconds += took
                since, told_at = time.monotonic(), at.read
            if at.step % SAVED_EVERY == 0:
                _save(saved, bare, optimizer, at)
        at = Progress(at.stage + 1, seconds=at.seconds, losses=[*at.losses, line])
        _save(saved, bare, optimizer, at)
    return bare, at


def _save(file: Path, model: PreTrainedModel, optimizer: Any, at: Progress) -> None:
    import torch

    unfinished = file.with_suffix(".part")
    state = {
        "progress": msgspec.to_builtins(at),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(state, unfinished)
    unfinished.rename(file)


def export(model: PreTrainedModel, tokenizer: ChatTokenizer, out: Path) -> None:
    """Write the model's folder, weights in bfloat16."""
    from transformers import GenerationConfig

    own = tokenizer.huggingface
    model.generation_config = GenerationConfig(
        eos_token_id=[own.eos_token_id, own.pad_token_id], pad_token_id=own.pad_token_id
    )
    model.cpu().bfloat16().save_pretrained(out)
    own.save_pretrained(out)


def tell(line: str) -> None:
    """Print a line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def facts(model: PreTrainedModel, sources: dict[str, Examples], at: Progress, out: Path) -> card.Facts:
    """What the card says of a model that has just been exported."""
    return card.Facts(
        trained=date.today().isoformat(),
        recipe=card.recipe_files(),
        seen=card.seen(),
        files=card.files(out),
        corpus={name: (len(each), len(each.ids)) for name, each in sources.items()},
        weights=model.num_parameters(),
        vocabulary=model.config.vocab_size,
        minutes=at.seconds / 60,
        losses=at.losses,
        versions={name: version(name) for name in ("torch", "transformers", "tokenizers", "accelerate")},
    )


def run(recipe: Recipe, work: Path, out: Path) -> None:
    """Make the corpus, train, export."""
    tokenizer, sources = make_corpus(recipe, work)
    for name, examples in sources.items():
        learnt = int(examples.learnt.sum())
        tell(f"{name}: {len(examples):,} examples, {len(examples.ids):,} tokens, {learnt:,} learnt")
    model, at = train(recipe, tokenizer, sources, work)
    export(model, tokenizer, out)
    card.write(out, facts(model, sources, at, out))
    tell(f"{out} is ready; `python -m models.tiny.evaluate` measures it")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m models.tiny.train", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--out", type=Path, default=card.WEIGHTS, metavar="DIR", help="the model folder to write"
    )
    parser.add_argument(
        "--work", type=Path, default=Path(".cache/tiny"), metavar="DIR", help="what is made on the way"
    )
    given = parser.parse_args()
    try:
        recipe = Recipe.read()
        open_work(given.work)
        run(recipe, given.work, given.out)
    except (OtherRecipe, HostError, SandboxError, StorageError, OSError, msgspec.MsgspecError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on")


if __name__ == "__main__":
    main()
