"""Write a library as an agent skill: a folder with SKILL.md, the module, and a measured label.

    SKILL.md               what the skills are, how to call them, what was measured
    scripts/skills.py      the library's module, unchanged
    label.json             the measured label, see `speedrunner.results.library_label`
    policy.json            the rest of the policy: each skill's visibility and sleeps, notes, method state
    certificate.json       a determinism certificate of the environment, if one was given

Format of SKILL.md: https://agentskills.io/specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from inspect import Signature
from itertools import groupby
from pathlib import Path

import msgspec

from envs import Primitive
from speedrunner.config.console import shorten, visible
from speedrunner.config.schema import InvalidConfig
from speedrunner.library.library import Library
from speedrunner.results.blame import format_estimate
from speedrunner.results.inference import Estimate
from speedrunner.results.library_label import MEASURES, SHARES, SUCCESS, Evaluation, LibraryLabel
from speedrunner.store.files import explain_errors, write_shared
from speedrunner.store.folders import output_folder
from speedrunner.store.json_records import format_record
from speedrunner.store.records import Policy

NAME_CHARS, DESCRIPTION_CHARS = 64, 1024
"""Maximum lengths of a skill's name and description in the specification, in characters."""

UNMEASURED = "not measured"


def check_name(folder: Path) -> str:
    """Return the folder's name, which is the name of the skill. Raises `InvalidConfig` if it cannot be."""
    name = folder.resolve().name
    if len(name) > NAME_CHARS or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise InvalidConfig(
            f"--out {folder}: the folder's name becomes the name of the skill, which has at most {NAME_CHARS}"
            " lower-case letters, digits and single hyphens, such as babyai-skills"
        )
    return name


def write_package(
    policy: Policy, library: Library, label: LibraryLabel, folder: Path, certificate: bytes | None = None
) -> None:
    """Write a library into a new or empty folder.

    Args:
        library: the policy's, over the primitives of its environment.
        certificate: content of the determinism certificate that the label names.

    Raises:
        InvalidConfig: the folder's name cannot be the name of a skill.
        StorageError: the folder cannot be written.
    """
    name = check_name(folder)
    rest = msgspec.structs.replace(policy, module="")
    contents = {
        "SKILL.md": "\n".join([*_front_matter(name, library, label), *_body(library, label)]).encode()
        + b"\n",
        "scripts/skills.py": policy.module.encode(),
        "label.json": format_record(label),
        "policy.json": format_record(rest),
    }
    if certificate is not None:
        contents["certificate.json"] = certificate
    with explain_errors(folder, "written"), output_folder(folder) as hidden:
        (hidden / "scripts").mkdir()
        for file, content in contents.items():
            write_shared(hidden / file, content)


def _front_matter(name: str, library: Library, label: LibraryLabel) -> Iterator[str]:
    skills = ", ".join(skill.name for skill in library.public)
    about = f"Skills for the text environment {label.env}, written by a model. Use them to play its tasks."
    fields = {
        "name": name,
        "description": shorten(f"{about} {skills}", DESCRIPTION_CHARS),
        "license": label.licence,
        "compatibility": "Needs SpeedRunner and its environment, which serve the skills as MCP tools.",
    }
    metadata = {
        "environment": label.env,
        "environment-digests": " ".join(f"{part}={digest}" for part, digest in label.env_digests.items()),
        "model": label.model,
        "success-with": _mean(label.with_library, SUCCESS),
        "success-without": _mean(label.without, SUCCESS),
        "output-tokens-saved": _number(label.saved.get("output tokens"), "output tokens"),
        "test-episodes": str(label.with_library.episodes) if label.with_library else UNMEASURED,
        "run": f"{label.run}:{label.version}",
        "run-sha256": label.run_sha256,
        "label": "label.json",
    }
    yield "---"
    yield from (f"{key}: {_quoted(text)}" for key, text in fields.items())
    yield "metadata:"
    yield from (f"  {key}: {_quoted(text)}" for key, text in metadata.items())
    yield "---"


def _quoted(text: str) -> str:
    """Return a text as a YAML string in one line, without the line that ends the front matter."""
    return json.dumps(" ".join(visible(text).split()), ensure_ascii=False).replace("---", r"-\x2d-")


def _body(library: Library, label: LibraryLabel) -> Iterator[str]:
    first = library.public[0].name if library.public else "NAME"
    yield from ("", f"# Skills for {_plain(label.env)}", "")
    yield "A model wrote these functions while it played. Treat their text as untrusted code."
    yield from ("", "## Use", "")
    yield f"- Serve them as MCP tools: `speedrunner library serve {_plain(label.run)}:{label.version}`"
    yield (
        f"- Call one: `speedrunner library try scripts/skills.py {first} env={_plain(label.env)}"
        " --arguments '{...}'`"
    )
    yield (
        "- `scripts/skills.py` does not run by itself: it calls the primitives below, which the environment"
        " provides as global functions."
    )
    yield from ("", "## Skills", "")
    yield from _fenced(
        [
            _head(skill.name, library.signature(skill.name), library.doc(skill.name))
            for skill in library.public
        ]
    )
    yield from ("", "## Primitives", "")
    yield from _fenced([_primitive(each) for each in library.primitives])
    yield from ("", "## Measured", "")
    yield from _table(label)


def _plain(text: str) -> str:
    """Return a text without characters that are markup in Markdown or HTML."""
    return re.sub(r"[^\w.,:;()/ -]", "_", text)


def _primitive(primitive: Primitive) -> str:
    return _head(primitive.name, primitive.signature, primitive.doc)


def _head(name: str, signature: Signature, doc: str) -> str:
    return f"{name}{signature.replace(return_annotation=Signature.empty)}\n    " + doc.replace("\n", "\n    ")


def _fenced(texts: Sequence[str]) -> Iterator[str]:
    """Yield a code block. Its fence is longer than any row of backticks in it."""
    text = visible("\n\n".join(texts))
    longest = max((len(list(row)) for mark, row in groupby(text) if mark == "`"), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence, text, fence)


def _table(label: LibraryLabel) -> Iterator[str]:
    yield "| mean of a test episode | with the library | without | saved |"
    yield "|---|---|---|---|"
    for name in MEASURES:
        saved = _number(label.saved.get(name), name) if name not in SHARES else ""
        yield f"| {name} | {_mean(label.with_library, name)} | {_mean(label.without, name)} | {saved} |"
    yield ""
    yield "- In brackets: 95% bootstrap intervals over test tasks, for this library alone."
    yield "- Saved: without minus with, paired by task."
    for title, found in (("With the library", label.with_library), ("Without", label.without)):
        played = UNMEASURED
        if found is not None:
            played = (
                f"policy v{found.policy:04d} after {found.checkpoint} training rollouts; test episodes:"
                f" {found.episodes}"
            )
        yield f"- {title}: {played}."
    yield f"- Model: {_plain(label.model)}; author of the skills: {_plain(label.inducer)}."
    yield from (f"- Caveat: {_plain(line)}." for line in label.caveats)
    yield f"- Run: {_plain(label.run)}, SHA-256 {label.run_sha256}."
    yield f"- Certificate of determinism: {label.certificate or 'none'}."
    yield f"- Licence of the skills: {_plain(label.licence)}."


def _mean(found: Evaluation | None, name: str) -> str:
    return _number(found.means.get(name) if found else None, name)


def _number(estimate: Estimate | None, name: str) -> str:
    if estimate is None:
        return UNMEASURED
    return format_estimate(estimate, ".3f" if name in SHARES else ".1f")
