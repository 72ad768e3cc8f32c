"""Policy versions on disk: one folder each, written completely or not at all, never changed afterwards.

    v0003/
      skills.py      the skill library, an importable module
      library.json   each skill's visibility, and the sleeps that created and edited it
      notes.md       prose for the actor's prompt
      method.json    the method's own state

The folder is complete: a copy with other skills in `skills.py` is another policy.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from speedrunner.store import files, json_records
from speedrunner.store.files import whole_folder
from speedrunner.store.records import FORMAT, Policy, Skill

INDEX = "library.json"

T = TypeVar("T")


class InvalidPolicy(files.StorageError):
    """A policy cannot be stored and read back unchanged, or a stored policy is damaged."""


def decode_state(policy: Policy, kind: type[T], what: str) -> T:
    """Decode what a method has stored, such as the `playbook of ACE`. Raises `InvalidPolicy` if it is
    damaged."""
    try:
        return msgspec.convert(policy.method, kind)
    except msgspec.ValidationError as error:
        raise InvalidPolicy(f"policy v{policy.version:04d} contains no {what}: {error}") from error


class PolicyStore:
    """The policy versions in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def versions(self) -> list[int]:
        """Return the stored versions, ascending."""
        if not self.folder.is_dir():
            return []
        with files.explain_errors(self.folder, "read"):
            names = (path.name for path in self.folder.iterdir())
            return sorted(int(name[1:]) for name in names if re.fullmatch(r"v\d{4,}", name))

    def load(self, version: int) -> Policy:
        """Read one version. Does not check that its module is valid Python; readers of the library do.

        Raises:
            InvalidPolicy: the version does not exist or is damaged.
            UnknownFormat: it has a layout of another version.
        """
        path = self._path(version)
        if not path.is_dir():
            stored = ", ".join(map(str, self.versions())) or "none"
            raise InvalidPolicy(f"{self.folder} has no policy version {version}; it has: {stored}")
        try:
            policy = _read(path)
        except json_records.UnknownFormat:
            raise
        except files.StorageError as error:
            raise InvalidPolicy(str(error)) from error
        except (ValueError, msgspec.DecodeError) as error:
            raise InvalidPolicy(f"{path} contains no readable policy: {error}") from error
        if policy.version != version:
            raise InvalidPolicy(f"{path} is a copy of version {policy.version}")
        return policy

    def save(self, policy: Policy) -> None:
        """Write a new version.

        Raises:
            InvalidPolicy: it would not be read back unchanged: a text is invalid, or `method` is not JSON.
            StorageError: the version has content already, or the disk refuses it.
        """
        final = self._path(policy.version)
        files.make_folder(self.folder)
        try:
            contents = {
                "skills.py": policy.module.encode(),
                INDEX: json_records.format_record(LibraryIndex(policy.version, policy.skills)),
                "notes.md": policy.notes.encode(),
                "method.json": msgspec.json.format(msgspec.json.encode(policy.method), indent=2) + b"\n",
            }
            with whole_folder(final) as hidden:
                for name, content in contents.items():
                    files.write_atomic(hidden / name, content)
                if _read(hidden) != policy:
                    raise ValueError("it would not read back unchanged")
        except (ValueError, TypeError, msgspec.DecodeError) as error:
            raise InvalidPolicy(f"policy version {policy.version} cannot be stored: {error}") from error

    def _path(self, version: int) -> Path:
        return self.folder / f"v{version:04d}"


class LibraryIndex(msgspec.Struct):
    """The content of `library.json`."""

    version: int
    skills: tuple[Skill, ...]
    format: int = FORMAT


def _read(folder: Path) -> Policy:
    index = json_records.read_record(folder / INDEX, LibraryIndex)
    module = files.read_content(folder / "skills.py")
    notes = files.read_content(folder / "notes.md")
    return Policy(
        version=index.version,
        module=module.decode(),
        skills=index.skills,
        notes=notes.decode(),
        method=json_records.read_json(folder / "method.json"),
    )
