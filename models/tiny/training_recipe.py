"""`training.yaml`, typed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from envs.babyai import WORLD_SEEDS
from speedrunner.config.schema import AtLeastOne

WORLDS = range(WORLD_SEEDS.stop, 100 * WORLD_SEEDS.stop)
"""Seeds of the corpus: no world of either split is among them."""

SOURCES = ("snapshots", "plain", "skilled", "sleeps")

WARM_UP = 100
"""Steps until a stage's rate is reached."""


class Vocabulary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the tokenizer is made.

    Attributes:
        sample: texts of each source from which phrases and words are taken.
        phrase_share: the least share of some source's sample that a phrase stands in.
        words: entries learnt from what is no phrase, bytes included.
    """

    sample: int
    phrase_share: float
    words: int


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of Qwen3's configuration, and how two kinds of weights begin.

    Attributes:
        embedding_deviation: standard deviation of the embeddings.
        attention_gain: by which queries and keys are scaled.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    embedding_deviation: float
    attention_gain: float


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stage of the training.

    Attributes:
        tokens: that it reads, padding not counted.
        batch: tokens of one step, padding counted.
        rate: the highest learning rate.
        constant: part of the tokens that are read at that rate; then it falls linearly.
        mix: shares of the examples by source.
    """

    tokens: AtLeastOne
    batch: AtLeastOne
    rate: float
    constant: float
    mix: dict[str, float]

    def share_of_rate(self, step: int, read: int) -> float:
        """What of the rate holds after so many steps and tokens: a short warm-up, then all, then less."""
        left = (1 - read / self.tokens) / (1 - self.constant)
        return min((step + 1) / WARM_UP, 1.0) * min(max(left, 0.02), 1.0)


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of it.

    Attributes:
        context: tokens that the model is made for.
        threads: of one step; more than one gains nothing at this size.
        corpus: examples by source; of `sleeps`, runs that are recorded.
    """

    seed: int
    context: int
    threads: int
    vocabulary: Vocabulary
    corpus: dict[str, AtLeastOne]
    network: Network
    stages: list[Stage]

    def __post_init__(self) -> None:
        mixed = {name for stage in self.stages for name in stage.mix}
        if {*self.corpus} != {*SOURCES} or not mixed <= {*SOURCES}:
            raise ValueError(f"corpus must have {', '.join(SOURCES)}, and mixes must be of these")

    @classmethod
    def read(cls) -> Recipe:
        """The file as it stands. Raises `msgspec.ValidationError`."""
        return msgspec.yaml.decode(Path(__file__).with_name("training.yaml").read_bytes(), type=cls)
