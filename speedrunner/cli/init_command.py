"""`speedrunner init`: write a template of an environment, a method or a model config."""

from __future__ import annotations

import keyword
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from serving.new_model_config import describe_model
from speedrunner.cli.output import say
from speedrunner.store.files import explain_errors, write_shared

SCAFFOLD = Path(__file__).with_name("scaffold")

Kind = Literal["env", "method", "model"]

NEXT = {
    "env": ("speedrunner episode env={name}:{cls} model=tiny-random",),
    "method": (
        "speedrunner run method={name}:{cls} model=tiny run.rollouts=4 run.sleep_every=2 run.eval_every=4"
        " run.test_episodes=2",
    ),
    "model": (
        "speedrunner serve model={name}.yaml --print",
        "speedrunner episode model={name}.yaml",
    ),
    "real model": (
        "speedrunner prepare model={name}.yaml",
        "speedrunner bench probe tools model={name}.yaml --count 20",
        "speedrunner episode model={name}.yaml",
    ),
}
"""Commands that try the written files."""

GGUF = "AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE) and save_pretrained, of transformers"

MODULE_NAME = (r"[a-zA-Z]\w*", "letters, digits and _, a letter first, not a keyword of Python")
NAMES = {"model": (r"(\w[\w.-]*/)?[a-zA-Z0-9][\w.-]*", "letters, digits, _, . and -, or a hub model's id")}


class NotWritten(Exception):
    """A scaffold cannot be written under the given name."""


def init(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="env, method or model.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the module or of the model configuration; or a model's folder, or its id on the"
            " Hugging Face hub.",
        ),
    ],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="Folder to write to. Default: the current one.", show_default=False
        ),
    ] = Path(),
) -> None:
    """Write a working example of an environment, a method or a model.

    Change the example into your own; its test comes with it. Nothing is overwritten. A model in a folder or
    on the hub needs no more: context, tool calls, thinking and sampling are read from its files.

    Examples:
      speedrunner init env treasure_hunt
      speedrunner init model Qwen/Qwen3-8B
    """
    if kind == "model" and name.endswith(".gguf"):
        raise NotWritten(f"{name} is a GGUF file: convert it to a folder first ({GGUF})")
    source = Path(name) if kind == "model" and (Path(name) / "config.json").is_file() else None
    name = source.resolve().name if source else name
    pattern, what = NAMES.get(kind, MODULE_NAME)
    if not re.fullmatch(pattern, name) or keyword.iskeyword(name):
        raise NotWritten(f"{name!r} cannot name the {kind}: use {what}")
    model = source or (name if "/" in name else None)
    name = name.rpartition("/")[2].lower() if model else name
    module = re.sub(r"\W", "_", name)
    cls = "".join(part[0].upper() + part[1:] for part in module.split("_") if part)
    mine = {f"speedrunner.cli.scaffold.my_{kind}": module, f"my_{kind}": name, f"My{kind.title()}": cls}
    texts = {
        folder / _replace_words(file.name, {f"test_my_{kind}": f"test_{module}", **mine}): _replace_words(
            file.read_text(), mine
        )
        for file in sorted(SCAFFOLD.glob(f"*my_{kind}.*"))
    }
    if any(re.search(rf"\b{cls}\b", file.read_text()) for file in SCAFFOLD.glob(f"my_{kind}.py")):
        raise NotWritten(f"{cls} is a class that {kind}s use: choose another name")
    for path in texts:
        if path.exists():
            raise NotWritten(f"{path} already exists: choose another name or folder")
    if kind != "model" and find_spec(name) is not None:
        raise NotWritten(
            f"{name} is an installed module, which would be imported instead: choose another name"
        )
    if model:
        texts[folder / f"{name}.yaml"] = describe_model(model, name)
    for path, text in texts.items():
        with explain_errors(path, "written"):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_shared(path, text.encode())
        say(f"wrote {path}")
    say("try it there:")
    for line in (f"python -m pytest test_{module}.py", *NEXT["real model" if model else kind]):
        say(f"  {line.format(name=name, cls=cls)}")


def _replace_words(text: str, words: dict[str, str]) -> str:
    return re.sub("|".join(map(re.escape, words)), lambda found: words[found[0]], text)
