"""The training loop: a small Qwen3, batches of similar lengths, AdamW, a long linear decay of the rate."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from models.tiny.actor_examples import Example
from models.tiny.training_corpus import check_file
from models.tiny.training_recipe import Recipe, Stage
from models.tiny.vocabulary import THINGS
from serving.tokens.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

POOL = 1024
"""Number of examples that are sorted by length together, to keep padding small."""

SAVED_EVERY, TOLD_EVERY = 1000, 200
"""Intervals in steps."""


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
            (draw(name) for name in rng.choices(names, shares, k=POOL)), key=lambda each: len(each.ids)
        )
        cut: list[list[Example]] = [[]]
        for each in pool:
            if cut[-1] and len(each.ids) * (len(cut[-1]) + 1) > stage.batch:
                cut.append([])
            cut[-1].append(each)
        rng.shuffle(cut)
        yield from cut


def pad_examples(batch: Sequence[Example], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return right-padded ids and the mask of tokens to predict, both of shape (examples, tokens)."""
    import torch

    longest = max(len(each.ids) for each in batch)
    ids = np.full((len(batch), longest), pad, dtype=np.int64)
    learnt = np.zeros_like(ids, dtype=bool)
    for row, each in enumerate(batch):
        ids[row, : len(each.ids)] = each.ids
        learnt[row, : len(each.ids)] = each.learnt
    return torch.from_numpy(ids), torch.from_numpy(learnt)


def losses(
    model: PreTrainedModel, ids: torch.Tensor, learnt: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss and the id of each token to predict, row by row, as two flat tensors.

    Attention needs no padding mask: it is causal, and the padding is at the end.
    """
    import torch

    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    wanted = learnt[:, 1:]
    logits = model.lm_head(hidden[:, :-1][wanted])
    targets = ids[:, 1:][wanted]
    return torch.nn.functional.cross_entropy(logits, targets, reduction="none"), targets


def new_model(recipe: Recipe, tokenizer: ChatTokenizer) -> PreTrainedModel:
    """Return a Qwen3 with random weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = msgspec.structs.asdict(recipe.network)
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
    """Mean losses since the last report: of numbers, of things with their articles, of all other tokens."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        import torch

        texts = [tokenizer.decode([token]).strip() for token in range(len(tokenizer.huggingface))]
        kinds = ["number" if text.isdigit() else "thing" if text in THINGS else "other" for text in texts]
        self._names = ["number", "thing", "other"]
        self._kind = torch.tensor([self._names.index(kind) for kind in kinds])
        self._sums = torch.zeros(3)
        self._counts = torch.zeros(3)

    def add(self, loss: torch.Tensor, tokens: torch.Tensor) -> None:
        """Add the losses of one step."""
        kinds = self._kind[tokens.cpu()]
        self._sums.index_add_(0, kinds, loss.detach().float().cpu())
        self._counts.index_add_(0, kinds, (kinds >= 0).float())

    def line(self) -> str:
        """Return the means as a line of text, and reset them."""
        means = self._sums / self._counts.clamp(min=1)
        told = ", ".join(f"{name} {mean:.4f}" for name, mean in zip(self._names, means, strict=True))
        mean = float(self._sums.sum() / self._counts.sum().clamp(min=1))
        self._sums.zero_()
        self._counts.zero_()
        return f"loss {mean:.4f} ({told})"


class Progress(msgspec.Struct):
    """Progress of a training.

    Attributes:
        stage: index of the current stage.
        step: steps done in this stage.
        read: tokens read in this stage, without padding.
        seconds: duration of all steps.
        losses: the last line of each finished stage.
    """

    stage: int = 0
    step: int = 0
    read: int = 0
    seconds: float = 0.0
    losses: list[str] = []


def train(
    recipe: Recipe,
    tokenizer: ChatTokenizer,
    sources: Mapping[str, Sequence[Example]],
    work: Path,
    tell: Callable[[str], None],
) -> tuple[PreTrainedModel, Progress]:
    """Train through all stages, or resume an interrupted training.

    Args:
        work: folder of the checkpoint `training.pt`.
        tell: called with each line of progress.
    """
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
        with check_file(saved):
            state = torch.load(saved, map_location=accelerator.device)
            at = msgspec.convert(state["progress"], Progress)
            bare.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        if at.stage < len(recipe.stages):
            tell(f"going on with stage {at.stage + 1}, step {at.step}")
    pad = tokenizer.huggingface.pad_token_id
    while at.stage < len(recipe.stages):
        stage = recipe.stages[at.stage]
        drawn = batches(sources, stage, recipe.seed + at.stage)
        for _ in range(at.step):
            next(drawn)
        since, told_at = time.monotonic(), at.read
        while at.read < stage.tokens:
            batch = next(drawn)
            at.read += sum(len(each.ids) for each in batch)
            ids, learnt = (each.to(accelerator.device) for each in pad_examples(batch, pad))
            for group in optimizer.param_groups:
                group["lr"] = stage.rate * stage.share_of_rate(at.step, at.read)
            loss, tokens = losses(model, ids, learnt)
            optimizer.zero_grad()
            accelerator.backward(loss.mean())
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            at.step += 1
            told.add(loss, tokens)
            if at.step % TOLD_EVERY == 0 or at.read >= stage.tokens:
                took = time.monotonic() - since
                speed, line = (at.read - told_at) / took, told.line()
                part, left = min(at.read / stage.tokens, 1.0), max(stage.tokens - at.read, 0) / speed / 60
                tell(f"stage {at.stage + 1}: {part:4.0%}, {line}, {speed:,.0f} tokens/s, {left:.0f} min left")
                at.seconds += took
                since, told_at = time.monotonic(), at.read
            if at.step % SAVED_EVERY == 0 and at.read < stage.tokens:
                _save(saved, bare, optimizer, at)
        at = Progress(at.stage + 1, seconds=at.seconds, losses=[*at.losses, line])
        _save(saved, bare, optimizer, at)
    return bare, at


def _save(file: Path, model: PreTrainedModel, optimizer: Any, at: Progress) -> None:
    import torch

    unfinished, content = file.with_suffix(".part"), io.BytesIO()  # torch's writer hides full-disk errors
    state = {
        "progress": msgspec.to_builtins(at),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(state, content)
    unfinished.write_bytes(content.getvalue())
    unfinished.rename(file)
