"""The bundled model's card: what it was made from, what its files are, what was measured.

`facts.json` stands beside the weights; `README.md`, for people, is rendered from it.
"""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from models.tiny.sessions import inducer_tools
from speedrunner.config.compose import compose
from speedrunner.runs.identity import checkout
from speedrunner.runs.setup import set_up

HERE = Path(__file__).resolve().parent
WEIGHTS = HERE / "weights"
FACTS, TEXT = "facts.json", "README.md"


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
        recipe: SHA-256 of each file of the recipe.
        seen: digests of what of the project stands in the corpus: prompts, tools, environment.
        files: SHA-256 of tokenizer, template, configuration, weights.
        corpus: examples and tokens by source.
        weights: how many.
        minutes: that the training took.
        losses: the last line of each stage.
        versions: of the libraries.
        success_range: within which the measured success has to stay.
    """

    trained: str
    recipe: dict[str, str]
    seen: dict[str, str]
    files: dict[str, str]
    corpus: dict[str, tuple[int, int]]
    weights: int
    vocabulary: int
    minutes: float
    losses: list[str]
    versions: dict[str, str]
    success_range: tuple[float, float] = (0.35, 0.85)
    measured: Measured | None = None


def recipe_files() -> dict[str, str]:
    """SHA-256 of what corpus and weights are made by; of programs, of what they do, not of what they say."""
    kinds = (".py", ".yaml", ".txt")
    made_by = (path for path in HERE.rglob("*") if path.suffix in kinds and WEIGHTS not in path.parents)
    apart = ("card.py", "evaluate.py", "train.py")  # which say, measure and carry out
    return {str(path.relative_to(HERE)): _done_by(path) for path in sorted(made_by) if path.name not in apart}


def _done_by(path: Path) -> str:
    if path.suffix != ".py":
        return digest(path)
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_text(node: ast.AST) -> bool:
    """Whether it is a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def seen() -> dict[str, str]:
    """Digests of what the model was shown of the project, as it stands now."""
    setup = set_up(compose(["env=babyai", "method=speedrunner", "model=tiny-random"]))
    found = checkout(setup)
    tools = json.dumps([tool.openai for tool in inducer_tools(all_public=False, interpreter=True)])
    return {
        **{f"env/{name}": text for name, text in found["env"].items() if name != "tasks"},
        **found["prompts"],
        "method/tools": hashlib.sha256(tools.encode()).hexdigest()[:12],
    }


def files(folder: Path) -> dict[str, str]:
    """SHA-256 of the model's own files."""
    return {each.name: digest(each) for each in sorted(folder.iterdir()) if each.name not in (FACTS, TEXT)}


def digest(file: Path) -> str:
    """A file's SHA-256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def read(folder: Path = WEIGHTS) -> Facts:
    """The facts of a model folder."""
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
