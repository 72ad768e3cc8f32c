"""Training: batches of like length, a Qwen3 of a few hundred thousand weights, AdamW, a long linear decay."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from models.tiny.episodes import Example

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

POOL = 1024
"""Examples that are sorted by length together, so that little of a batch is padding."""

WARM_UP = 100
"""Steps until the rate is reached."""


class Stage(msgspec.Struct, frozen=True):
    """One stage of the training.

    Attributes:
        tokens: that it reads, padding not counted.
        batch: tokens of one step, padding counted.
        rate: the highest learning rate.
        constant: part of the steps at that rate; then it falls linearly.
        mix: shares of the examples by source.
    """

    tokens: int
    batch: int
    rate: float
    constant: float
    mix: dict[str, float]

    def share_of_rate(self, step: int, read: int) -> float:
        """What of the rate holds after so many steps and tokens: a short warm-up, then all, then less."""
        left = (1 - read / self.tokens) / (1 - self.constant)
        return min((step + 1) / WARM_UP, 1.0) * min(max(left, 0.02), 1.0)


def batches(sources: Mapping[str, Sequence[Example]], stage: Stage, seed: int) -> Iterator[list[Example]]:
    """Draw batches without end, each source in shuffled passes."""
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


def padded(batch: Sequence[Example], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids, padded at their ends, and which of them are to be predicted: each (examples, tokens)."""
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
    """The loss of each token that is to be predicted, and these tokens, row by row.

    No mask is needed: no token looks at those after it, where the padding is.
    """
    import torch

    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    wanted = learnt[:, 1:]
    logits = model.lm_head(hidden[:, :-1][wanted])
    targets = ids[:, 1:][wanted]
    return torch.nn.functional.cross_entropy(logits, targets, reduction="none"), targets
