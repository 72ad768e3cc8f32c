"""The bundled model's card: its recipe, the checksums of its files and its measured results.

`facts.json` is in the folder of the weights. `README.md` is the readable version, rendered from it.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jinja2
import msgspec

from envs.babyai import BabyAI
from models.tiny.actor_examples import episodes
from models.tiny.training_corpus import reader_of_bytes
from speedrunner.config.compose import compose
from speedrunner.methods.speedrunner.speedrunner_method import inducer_tools
from speedrunner.runs.identity import checkout
from speedrunner.runs.setup import set_up

HERE = Path(__file__).resolve().parent
WEIGHTS = HERE / "weights"
FACTS, TEXT = "facts.json", "README.md"

NOT_SHOWN = ("method/asi_style",)
"""Prompts that belong to method options the model was not trained with."""


class Stamp(msgspec.Struct, frozen=True):
    """What the corpus and the weights were made with, apart from the recipe.

    Attributes:
        seen: digests of the project's prompts, tools and texts in the corpus; see `digest_texts`.
        versions: library versions by name.
    """

    seen: dict[str, str]
    versions: dict[str, str]

    @classmethod
    def now(cls) -> Stamp:
        """Return the stamp of the current code and libraries."""
        libraries = ("torch", "transformers", "tokenizers", "accelerate")
        return cls(digest_texts(), {name: version(name) for name in libraries})


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
        made_of: the stamp at the start of the corpus.
        files: SHA-256 of tokenizer, template, configuration and weights.
        corpus: by source: number of examples, their tokens, tokens of the longest example.
        weights: number of parameters.
        vocabulary: number of the tokenizer's entries.
        minutes: duration of all training steps.
        losses: one line per stage, from its last steps.
        success_range: lowest and highest measured success that is accepted.
    """

    trained: str
    made_of: Stamp
    files: dict[str, str]
    corpus: dict[str, tuple[int, int, int]]
    weights: int
    vocabulary: int
    minutes: float
    losses: list[str]
    success_range: tuple[float, float] = (0.35, 0.99)
    measured: Measured | None = None


def digest_texts() -> dict[str, str]:
    """Return digests of the project's current prompts, tools and texts that the corpus shows the model."""
    setup = set_up(compose(["env=babyai", "method=speedrunner", "model=tiny-random"]))
    found = checkout(setup)
    tools = json.dumps([tool.openai for tool in inducer_tools(BabyAI.primitives, interpreter=True)])
    with TemporaryDirectory() as folder:
        reader = reader_of_bytes(Path(folder), 1024)
        played = [next(episodes(reader, -1, skilled)) for skilled in (0.0, 1.0)]
    texts = "".join(reader.decode(each.ids) for each in played)
    return {
        **{f"env/{name}": text for name, text in found["env"].items() if name != "tasks"},
        **{name: text for name, text in found["prompts"].items() if name not in NOT_SHOWN},
        "method/tools": hashlib.sha256(tools.encode()).hexdigest()[:12],
        "episodes": hashlib.sha256(texts.encode()).hexdigest()[:12],
    }


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
