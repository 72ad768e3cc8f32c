"""The bundled model's card: its recipe, the checksums of its files and its measured results.

`facts.json` is in the folder of the weights. `README.md` is the readable version, rendered from it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jinja2
import msgspec

HERE = Path(__file__).resolve().parent
WEIGHTS = HERE / "weights"
FACTS, TEXT = "facts.json", "README.md"

LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate")
"""Libraries that the corpus and the weights depend on."""


class Measured(msgspec.Struct, frozen=True):
    """Results of the served actor without skills, in worlds that it was not trained on.

    Attributes:
        success: share of successful episodes.
        llm_calls, output_tokens: means per episode.
    """

    date: str
    command: str
    episodes: int
    success: float
    llm_calls: float
    output_tokens: float


class Facts(msgspec.Struct, frozen=True):
    """The content of the card.

    Attributes:
        trained: date on which training ended.
        versions: versions of `LIBRARIES`.
        files: SHA-256 of tokenizer, template, configuration and weights.
        corpus: by source: number of examples, their tokens, tokens of the longest example.
        weights: number of parameters.
        vocabulary: number of the tokenizer's entries.
        minutes: duration of all training steps.
        losses: one line per stage, from its last steps.
        success_range: lowest and highest measured success that is accepted.
    """

    trained: str
    versions: dict[str, str]
    files: dict[str, str]
    corpus: dict[str, tuple[int, int, int]]
    weights: int
    vocabulary: int
    minutes: float
    losses: list[str]
    success_range: tuple[float, float] = (0.35, 0.99)
    measured: Measured | None = None


def files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each model file, without the card's."""
    return {each.name: digest(each) for each in sorted(folder.iterdir()) if each.name not in (FACTS, TEXT)}


def digest(file: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def read(folder: Path = WEIGHTS) -> Facts:
    """Return the facts of a model folder."""
    return msgspec.json.decode((folder / FACTS).read_bytes(), type=Facts)


def write(folder: Path, facts: Facts) -> None:
    """Write `facts.json` and `README.md`."""
    (folder / FACTS).write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
    (folder / TEXT).write_text(text(facts, folder), encoding="utf-8")


def text(facts: Facts, folder: Path) -> str:
    """Return the text of `README.md`."""
    template = jinja2.Template(
        (HERE / "card.md.jinja").read_text("utf-8"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    mebibytes: dict[str, Any] = {"size": (folder / "model.safetensors").stat().st_size / 2**20}
    return str(template.render(facts=facts, **mebibytes))
