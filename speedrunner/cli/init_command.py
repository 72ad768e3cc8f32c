"""`speedrunner init`: write an example environment or method, or a model's config."""

from __future__ import annotations

import json
import keyword
import os
import re
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import typer

from serving.model_configs import load_model_config
from serving.model_files import check_files, describe_model
from serving.weights import HUB_ID, prepare
from speedrunner.cli.output import say
from speedrunner.plain.plain_records import suggest
from speedrunner.plain.plain_yaml import write_yaml
from speedrunner.store.files import SHARED_MODE, explain_errors, write_atomic

SCAFFOLD = Path(__file__).with_name("scaffold")

NEXT = {
    "env": ("speedrunner episode env={name}:{cls} model=tiny-random",),
    "method": (
        "speedrunner run method={name}:{cls} model=tiny run.rollouts=4 run.sleep_every=2 run.eval_every=4"
        " run.test_episodes=2 run.dir=runs/{name}",
        "speedrunner verify runs/{name} --trust {name}:{cls}",
    ),
    "model": (
        "speedrunner prepare model={name}.yaml",
        "speedrunner bench probe tools model={name}.yaml --count 20",
        "speedrunner episode model={name}.yaml",
    ),
}
"""Commands that try the written files."""


API_KEY, ANSWER_S, CONTEXT = "OPENAI_API_KEY", 30, 32_768
"""Environment variable with an API's key, seconds to wait for its list of models, and the context in tokens
of a model that reports none."""


class NotWritten(Exception):
    """A scaffold cannot be written under the given name."""


def init(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="env, method or model.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the module; or a model's folder, its id on the Hugging Face hub, or the address of"
            " an OpenAI-compatible API that serves it (URL, or URL#MODEL).",
        ),
    ],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="Folder to write to. Default: the current one.", show_default=False
        ),
    ] = Path(),
) -> None:
    """Write an example environment or method, or a model's config.

    Change the example into your own; its test comes with it. The configuration of a model has the context,
    tool calls, thinking and sampling that its files show, and is checked. Nothing is overwritten.

    Examples:
      speedrunner init env treasure_hunt
      speedrunner init model Qwen/Qwen3-8B
      speedrunner init model http://localhost:8000/v1
    """
    if kind not in NEXT:
        raise NotWritten(f"{kind!r} is no kind{suggest(kind, NEXT)}: name {', '.join(NEXT)}")
    texts, commands = _model(name, folder) if kind == "model" else _example(kind, name, folder)
    for path in texts:
        if path.exists():
            raise NotWritten(f"{path} already exists: choose another name or folder")
    for path, text in texts.items():
        with explain_errors(path, "written"):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode(), SHARED_MODE)
        say(f"wrote {path}")
        if kind == "model":
            written = load_model_config(str(path))
            if "://" not in name:
                check_files(written, prepare(written, say), say, starts=False)
    say("try it there:", *(f"  {line}" for line in commands))


Written = tuple[dict[Path, str], list[str]]
"""The texts by file, and commands that try them."""


def _model(source: str, folder: Path) -> Written:
    """Describe a model by its files, or by what an API reports."""
    if "://" in source:
        return _describe_api(*source.partition("#")[::2], folder)
    is_folder = Path(source).is_dir()
    if not is_folder and source.startswith(("/", ".", "~")):
        raise NotWritten(f"{source} is not a folder, or does not exist")
    if not is_folder and not HUB_ID.fullmatch(source):
        raise NotWritten(f"{source!r} is not a model: give a folder or a hub id (ORGANISATION/MODEL)")
    name = Path(source).resolve().name if is_folder else source.rpartition("/")[2]
    name = re.sub(r"[^\w.-]+", "-", name.lower())
    text = describe_model(Path(source) if is_folder else source, name)
    return {folder / f"{name}.yaml": text}, [line.format(name=name) for line in NEXT["model"]]


def _describe_api(url: str, chosen: str, folder: Path) -> Written:
    """Describe a model that someone else serves.

    Args:
        chosen: the model's name there; empty if the API serves one model.
    """
    if "@" in urlsplit(url).netloc:
        raise NotWritten(f"the URL has user information: leave it out, and give the key in {API_KEY}")
    key = os.environ.get(API_KEY, "") if url.startswith("https://") else ""  # not unencrypted
    try:
        request = Request(
            f"{url.rstrip('/')}/models", headers={"Authorization": f"Bearer {key}"} if key else {}
        )
        with urlopen(request, timeout=ANSWER_S) as answer:
            served = {model["id"]: model for model in json.load(answer)["data"]}
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        raise NotWritten(f"{url}/models does not list the served models: {error}") from None
    names = [name for name in served if chosen in ("", name)]
    if len(names) != 1:
        raise NotWritten(f"{url} serves {', '.join(served) or 'no model'}: name one, such as {url}#MODEL")
    context = served[names[0]].get("max_model_len") or CONTEXT
    content = {
        "name": names[0],
        "tried": f"Nothing; written by `speedrunner init model {url}`.",
        "base_url": url.rstrip("/"),
        **({"api_key_env": API_KEY} if key else {}),
        "api": "chat",
        "context": context,
        "roles": {
            "actor": {"string_tokens": min(1024, context // 8)},
            "inducer": {"string_tokens": min(8192, context // 2)},
        },
        "prices": {"uncached": 0, "cached": 0, "output": 0},
    }
    name = re.sub(r"[^\w.-]+", "-", names[0].rpartition("/")[2].lower())
    notes = "# Check context and prices (USD per million tokens), which most APIs do not report.\n"
    commands = [line.format(name=name) for line in NEXT["model"][1:]]
    return {folder / f"{name}.yaml": notes + write_yaml(content)}, commands


def _example(kind: str, name: str, folder: Path) -> Written:
    """Rename an example."""
    if not re.fullmatch(r"[a-zA-Z]\w*", name) or keyword.iskeyword(name):
        what = "letters, digits and _, a letter first, not a keyword of Python"
        raise NotWritten(f"{name!r} cannot name the {kind}: use {what}")
    cls = "".join(part[0].upper() + part[1:] for part in name.split("_") if part)
    mine = {f"speedrunner.cli.scaffold.my_{kind}": name, f"my_{kind}": name, f"My{kind.title()}": cls}
    files = sorted(SCAFFOLD.glob(f"*my_{kind}.*"))
    if find_spec(name) is not None:
        raise NotWritten(
            f"{name} is an installed module, which would be imported instead: choose another name"
        )
    texts = {folder / _rename(file.name, mine): _rename(file.read_text(), mine) for file in files}
    tests = [f"python -m pytest test_{name}.py"]
    return texts, tests + [line.format(name=name, cls=cls) for line in NEXT[kind]]


def _rename(text: str, words: dict[str, str]) -> str:
    return re.sub("|".join(map(re.escape, words)), lambda match: words[match[0]], text)
