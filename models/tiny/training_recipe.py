"""The types of `training.yaml`, which has the meaning of each value."""

from __future__ import annotations

from pathlib import Path

import msgspec

from envs.babyai import WORLD_SEEDS
from speedrunner.config.schema import AtLeastOne

WORLDS = range(WORLD_SEEDS.stop, 100 * WORLD_SEEDS.stop)
"""World seeds of the corpus. They include no world of either split."""

WARM_UP = 100
"""Warm-up steps until a stage reaches its learning rate."""


class Vocabulary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the tokenizer."""

    sample: int
    phrase_share: float
    words: int


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stage of the training."""

    tokens: AtLeastOne
    batch: AtLeastOne
    rate: float
    constant: float
    mix: dict[str, float]

    def share_of_rate(self, step: int, read: int) -> float:
        """Return the factor of `rate` after so many steps and tokens: warm-up, constant, linear decay."""
        left = (1 - read / self.tokens) / (1 - self.constant)
        return min((step + 1) / WARM_UP, 1.0) * min(max(left, 0.02), 1.0)


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
