"""What is installed: by hash, and without packages that overwrite each other's files."""

from __future__ import annotations

import csv
import re
import sysconfig
from collections import defaultdict
from pathlib import Path

import pytest

from serving.model_configs import CHECKOUT

HARMLESS = {"build_backend.py"}
"""Files that may differ: a build script which two packages of the GPU lock ship and nothing imports."""


def test_no_package_of_this_environment_has_overwritten_another_s_files() -> None:
    """The last one installed wins. Copies with one hash are harmless; bytecode has no hash."""
    hashes = defaultdict[str, dict[str, str]](dict)
    for record in Path(sysconfig.get_path("purelib")).glob("*.dist-info/RECORD"):
        with record.open(encoding="utf-8", newline="") as rows:
            for path, digest, *_ in csv.reader(rows):
                if digest:
                    hashes[path][record.parent.name] = digest
    different = {path: owners for path, owners in hashes.items() if len(set(owners.values())) > 1}
    assert len(hashes) > 10_000
    assert different.keys() <= HARMLESS, different


@pytest.mark.parametrize(("kind", "least"), [("cpu", 200), ("gpu", 200)])
def test_each_package_of_a_lock_is_pinned_by_version_and_hash(kind: str, least: int) -> None:
    lines = (CHECKOUT / "requirements" / f"{kind}.lock").read_text("utf-8").splitlines()
    pins = [number for number, line in enumerate(lines) if re.match("[a-z]", line)]
    assert len(pins) > least
    for number in pins:
        assert re.fullmatch(r"[\w.-]+==\S+ \\", lines[number])
        assert re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}( \\)?", lines[number + 1])
