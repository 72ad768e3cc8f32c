"""Policy versions on disk: one folder each, written whole or not at all, never changed afterwards.

    v0003/
      skills.py      an importable module: preamble, then the skills in their order
      library.json   what the source does not say of each skill
      notes.md       prose for the actor's prompt
      method.json    the method's own state

The folder says all there is to say: a copy with other skills in `skills.py` is another policy.
"""

from __future__ import annotations

import ast
import itertools
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import msgspec

from speedrunner.store.files import (
    StorageError,
    explained,
    publish_folder,
    read_record,
    temporary_name,
    write_atomic,
)
from speedrunner.store.records import FORMAT, Policy, Skill

_HEADER = '"""Skills of policy version {version}."""'
_GAP = "\n\n\n"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
"""A line as Python counts them: `str.splitlines` ends lines in more places."""


class InvalidPolicy(StorageError):
    """A policy cannot be stored such that it would be read back the same, or a stored one is damaged."""


class PolicyStore:
    """The policy versions in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def versions(self) -> list[int]:
        """Stored versions, ascending."""
        if not self.folder.is_dir():
            return []
        with explained(self.folder, "read"):
            names = (path.name for path in self.folder.iterdir())
            return sorted(int(name[1:]) for name in names if re.fullmatch(r"v\d{4,}", name))

    def latest(self) -> Policy | None:
        """The highest version; `None` when there is none yet."""
        versions = self.versions()
        return self.load(versions[-1]) if versions else None

    def load(self, version: int) -> Policy:
        """Read one version.

        Raises:
            InvalidPolicy: there is no such version, or it is damaged.
            UnknownFormat: it was written in another layout.
        """
        path = self._path(version)
        if not path.is_dir():
            stored = ", ".join(map(str, self.versions())) or "none"
            raise InvalidPolicy(f"{self.folder} holds no policy version {version}; it holds: {stored}")
        try:
            return _read(path)
        except (ValueError, SyntaxError, RecursionError, MemoryError, msgspec.DecodeError) as error:
            reason = str(error) or type(error).__name__
            raise InvalidPolicy(f"{path} holds no readable policy: {reason}") from error

    def save(self, policy: Policy) -> None:
        """Write a new version.

        Raises:
            InvalidPolicy: it would not be read back the same: a source is no Python, begins with something
                other than its function, or defines another skill's name; the preamble ends in blank lines;
                `method` holds something that is no JSON.
            StorageError: the version exists, or the disk refuses it.
        """
        final = self._path(policy.version)
        temporary = temporary_name(final)
        with explained(final, "written"):
            self.folder.mkdir(exist_ok=True)
            if temporary.exists():
                shutil.rmtree(temporary)
            temporary.mkdir()
        try:
            try:
                _write(temporary, policy)
                if _read(temporary) != policy:
                    raise ValueError("it would read back differently: check preamble, names and sources")
            except (ValueError, TypeError, SyntaxError, msgspec.DecodeError) as error:
                raise InvalidPolicy(f"policy version {policy.version} cannot be stored: {error}") from error
            publish_folder(temporary, final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _path(self, version: int) -> Path:
        return self.folder / f"v{version:04d}"


class _Entry(msgspec.Struct):
    """What `library.json` says of a skill."""

    name: str
    public: bool
    doc: str
    created: int
    edited: int


class _Index(msgspec.Struct):
    version: int
    skills: list[_Entry]
    format: int = FORMAT


def _write(folder: Path, policy: Policy) -> None:
    head = _HEADER.format(version=policy.version) + (f"\n\n{policy.preamble}" if policy.preamble else "")
    module = _GAP.join([head, *(skill.source for skill in policy.skills)]) + "\n"
    index = _Index(
        policy.version,
        [_Entry(skill.name, skill.public, skill.doc, skill.created, skill.edited) for skill in policy.skills],
    )
    files: dict[str, bytes | msgspec.Struct] = {
        "skills.py": module.encode(),
        "library.json": index,
        "notes.md": policy.notes.encode(),
        "method.json": msgspec.json.format(msgspec.json.encode(policy.method), indent=2) + b"\n",
    }
    for name, content in files.items():
        write_atomic(folder / name, content)


def _read(folder: Path) -> Policy:
    index = read_record(folder / "library.json", _Index)
    with explained(folder, "read"):
        module = (folder / "skills.py").read_bytes()
        notes = (folder / "notes.md").read_bytes()
        method = (folder / "method.json").read_bytes()
    preamble, sources = _split(module.decode(), [entry.name for entry in index.skills])
    return Policy(
        version=index.version,
        skills=tuple(
            Skill(source=source, **msgspec.structs.asdict(entry))
            for entry, source in zip(index.skills, sources, strict=True)
        ),
        preamble=preamble,
        notes=notes.decode(),
        method=msgspec.json.decode(method, type=dict[str, Any]),
        format=index.format,
    )


def _split(module: str, names: list[str]) -> tuple[str, list[str]]:
    """Take a `skills.py` apart into its preamble and the sources of `names`, in their order.

    A source begins with its function (or its first decorator) and goes on up to the next one's.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a model's sources ("\\d" in a plain string), not of ours
        body = ast.parse(module).body
    skills = [
        node
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names
    ]
    if [node.name for node in skills] != names or len(set(names)) != len(names):
        raise ValueError(f"skills.py should define once, and in this order: {', '.join(names)}")
    starts = [min(part.lineno for part in (node, *node.decorator_list)) - 1 for node in skills]
    lines = _LINE.findall(module)
    bounds = [*starts, len(lines)]
    head = _text(lines[_header_length(body) : bounds[0]], last=not starts)
    sources = [_text(lines[start:end], last=end == len(lines)) for start, end in itertools.pairwise(bounds)]
    return head.removeprefix("\n") if head.strip() else "", sources


def _header_length(body: list[ast.stmt]) -> int:
    """Lines of our own docstring."""
    is_docstring = body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return (body[0].end_lineno or 0) if is_docstring else 0


def _text(lines: list[str], *, last: bool) -> str:
    """A region without what stands between it and the next."""
    return "".join(lines).removesuffix("\n" if last else _GAP)
