"""Write a library as an agent skill: a folder with SKILL.md and the module.

    SKILL.md               what the skills are and how to call them
    scripts/skills.py      the library's module, unchanged

Format of SKILL.md: https://agentskills.io/specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from inspect import Signature
from pathlib import Path
from textwrap import indent

from speedrunner.config.schema import InvalidConfig
from speedrunner.library.library import Library
from speedrunner.plain.console import shorten, visible
from speedrunner.store.files import OUTPUT_MODE, whole_folder
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import RunData

NAME_CHARS, DESCRIPTION_CHARS = 64, 1024
"""Maximum lengths of a skill's name and description in the specification, in characters."""


def check_name(folder: Path) -> str:
    """Return the folder's name, which is the name of the skill. Raises `InvalidConfig` if it cannot be."""
    name = folder.resolve().name
    if len(name) > NAME_CHARS or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise InvalidConfig(
            f"--out {folder}: the folder's name becomes the name of the skill, which has at most {NAME_CHARS}"
            " lower-case letters, digits and single hyphens, such as babyai-skills"
        )
    return name


def write_package(run: RunData, version: int, library: Library, folder: Path) -> None:
    """Write a version of a run's library into a new or empty folder.

    Args:
        library: the version's, over the primitives of the run's environment.

    Raises:
        InvalidConfig: the folder's name cannot be the name of a skill.
        StorageError: the folder cannot be written.
    """
    name = check_name(folder)
    lines = [*_front_matter(name, run, version, library), *_body(run, library)]
    contents = {
        "SKILL.md": "\n".join([*lines, ""]).encode(),
        "scripts/skills.py": run.policies.load(version).module.encode(),
    }
    with whole_folder(folder, OUTPUT_MODE) as hidden:
        (hidden / "scripts").mkdir()
        for file, content in contents.items():
            (hidden / file).write_bytes(content)


def _front_matter(name: str, run: RunData, version: int, library: Library) -> Iterator[str]:
    env = run.settings.env.name
    about = f"Skills for the text environment {env}, written by a model. Use them to play its tasks."
    skills = ", ".join(skill.name for skill in library.public)
    fields = {
        "name": name,
        "description": shorten(f"{about} {skills}", DESCRIPTION_CHARS),
        "license": f"Written by the model {run.model_name}, under the terms of this model",
    }
    yield "---"
    yield from (f"{key}: {_quoted(text)}" for key, text in fields.items())
    yield "metadata:"
    yield f"  run: {_quoted(f'{run.path.name}:{version}')}"
    yield f"  run-sha256: {_quoted(run.digest)}"
    yield "---"


def _quoted(text: str) -> str:
    """Return a text as a YAML string in one line, without the line that ends the front matter."""
    return json.dumps(" ".join(visible(text).split()), ensure_ascii=False).replace("---", r"-\x2d-")


def _body(run: RunData, library: Library) -> Iterator[str]:
    env = _plain(run.settings.env.name)
    yield from ("", f"# Skills for {env}", "")
    yield "A model wrote these functions while it played. Treat their text as untrusted code."
    yield from (f"Caveat: {_plain(line)}." for line in caveats([run]))
    yield from ("", "## Use", "")
    yield (
        "- `scripts/skills.py` does not run by itself: it calls the primitives below, which the environment"
        " provides as global functions."
    )
    skills = [(each.name, library.signature(each.name), library.doc(each.name)) for each in library.public]
    primitives = [(each.name, each.signature, each.doc) for each in library.primitives]
    for title, functions in (("Skills", skills), ("Primitives", primitives)):
        yield from ("", f"## {title}", "")
        yield from (_show_function(*function) for function in functions)


def _show_function(name: str, signature: Signature, doc: str) -> str:
    """Return signature and docstring as an indented code block, in which nothing is markup."""
    head = f"{name}{signature.replace(return_annotation=Signature.empty)}"
    text = visible("\n".join([head, *(f"    {line}" for line in doc.splitlines())]))
    return indent(text, "    ", lambda line: True) + "\n"


def _plain(text: str) -> str:
    """Return a text without characters that are markup in Markdown or HTML."""
    return re.sub(r"[^\w.,:;()/ -]", "_", text)
