"""The bundled model's card: what it was made from, what its files are, what was measured.

`facts.json` stands beside the weights; `README.md`, for people, is rendered from it.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Set
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jinja2
import msgspec

from envs.babyai import BabyAI
from models.tiny.actor_examples import episodes
from models.tiny.training_corpus import reader_of_bytes, whole
from speedrunner.config.compose import compose
from speedrunner.methods.speedrunner.speedrunner_method import inducer_tools
from speedrunner.runs.identity import checkout
from speedrunner.runs.setup import set_up

HERE = Path(__file__).resolve().parent
WEIGHTS = HERE / "weights"
FACTS, TEXT = "facts.json", "README.md"

NOT_SHOWN = ("method/asi_style",)
"""Prompts of a method that are for options of its."""


class Stamp(msgspec.Struct, frozen=True):
    """What determines a corpus and the weights that come of it.

    Attributes:
        recipe: SHA-256 of each file of the recipe.
        seen: digests of what of the project stands in the corpus: prompts, tools, texts.
        versions: of the libraries.
    """

    recipe: dict[str, str]
    seen: dict[str, str]
    versions: dict[str, str]

    @classmethod
    def now(cls) -> Stamp:
        """As it would be made here."""
        libraries = ("torch", "transformers", "tokenizers", "accelerate")
        return cls(recipe_files(), seen(), {name: version(name) for name in libraries})


class Measured(msgspec.Struct, frozen=True):
    """The actor by primitives alone, as it is served, in worlds that it was not trained on.

    Attributes:
        success: share of the episodes.
        llm_calls, output_tokens: means per episode.
    """

    date: str
    command: str
    episodes: int
    success: float
    llm_calls: float
    output_tokens: float


class Facts(msgspec.Struct, frozen=True):
    """What the card says.

    Attributes:
        trained: the day.
        made_of: as it was when the corpus was begun.
        files: SHA-256 of tokenizer, template, configuration, weights.
        corpus: examples, their tokens, and those of the longest one, by source.
        weights: how many.
        minutes: that the steps of the training took.
        losses: at the end of each stage.
        success_range: within which the measured success has to stay.
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


def recipe_files() -> dict[str, str]:
    """Return SHA-256 of what corpus and weights are made by. Of programs it covers what they do: not their
    docstrings, and not how they call their own functions and variables."""
    kinds = (".py", ".yaml", ".txt")
    made_by = (path for path in HERE.rglob("*") if path.suffix in kinds and WEIGHTS not in path.parents)
    apart = ("card.py", "evaluate.py", "train.py")  # which report, measure and run it
    files = [path for path in sorted(made_by) if path.name not in apart]
    trees = {path: ast.parse(path.read_bytes()) for path in files if path.suffix == ".py"}
    own = {name for tree in trees.values() for name in _defined(tree)}
    return {
        str(path.relative_to(HERE)): _shape_digest(trees[path], own) if path in trees else digest(path)
        for path in files
    }


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield the names of a program's own classes, functions, parameters and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _shape_digest(tree: ast.Module, own: Set[str]) -> str:
    """Return the digest of a program without docstrings and imports, its own names replaced by numbers. It is
    the same in all versions of Python, whose trees differ in fields that are empty."""
    numbers: dict[str, int] = {}

    def shape(node: Any) -> Any:
        if isinstance(node, list):
            return [
                shape(each) for each in node if not _is_text(each) and not isinstance(each, ast.ImportFrom)
            ]
        if isinstance(node, str):
            return numbers.setdefault(node, len(numbers)) if node in own else node
        if isinstance(node, ast.Constant) or not isinstance(node, ast.AST):
            return node.value if isinstance(node, ast.Constant) else node
        fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return type(node).__name__, [(name, shape(value)) for name, value in fields]

    return hashlib.sha256(repr(shape(tree)).encode()).hexdigest()


def _is_text(node: Any) -> bool:
    """Whether it is a docstring."""
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant and isinstance(node.value.value, str)


def seen() -> dict[str, str]:
    """Digests of what the model was shown of the project, as it stands now: prompts, tools, texts."""
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
    """SHA-256 of the model's own files."""
    return {each.name: digest(each) for each in sorted(folder.iterdir()) if each.name not in (FACTS, TEXT)}


def digest(file: Path) -> str:
    """A file's SHA-256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def read(folder: Path = WEIGHTS) -> Facts:
    """The facts of a model folder. Raises `Damaged`."""
    with whole(folder / FACTS):
        return msgspec.json.decode((folder / FACTS).read_bytes(), type=Facts)


def write(folder: Path, facts: Facts) -> None:
    """Write facts and card."""
    (folder / FACTS).write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
    (folder / TEXT).write_text(text(facts, folder), encoding="utf-8")


def text(facts: Facts, folder: Path) -> str:
    """The card in words."""
    template = jinja2.Template(
        (HERE / "card.md.jinja").read_text("utf-8"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    mebibytes: dict[str, Any] = {"size": (folder / "model.safetensors").stat().st_size / 2**20}
    return str(template.render(facts=facts, **mebibytes))
