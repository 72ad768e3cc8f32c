"""What is installed: by hash, and without packages that overwrite each other's files."""

from __future__ import annotations

import csv
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from serving.model_configs import CHECKOUT
from tests.package_files import Overwritten, overwritten_files

HARMLESS = {"build_backend.py"}
"""Files that may differ: a build script which two packages of the GPU lock ship and nothing imports."""


def install(site_packages: Path, package: str, files: Mapping[str, str]) -> None:
    """Write what the installation of a package records, with a hash for each of its files."""
    folder = site_packages / f"{package}.dist-info"
    folder.mkdir()
    with (folder / "RECORD").open("w", encoding="utf-8", newline="") as record:
        rows = csv.writer(record)
        rows.writerows((path, digest, "1") for path, digest in files.items())
        rows.writerow((f"{folder.name}/RECORD", "", ""))


def test_no_package_of_this_environment_has_overwritten_another_s_files() -> None:
    found = overwritten_files(Path(sysconfig.get_path("purelib")))
    assert [each for each in found if each.path not in HARMLESS] == []


def test_a_file_of_two_packages_with_different_content_is_found(tmp_path: Path) -> None:
    install(
        tmp_path, "cuda_python-12.6.2", {"cuda/bindings/driver.so": "sha256=old", "cuda/LICENSE": "sha256=a"}
    )
    install(tmp_path, "cuda_bindings-13.5.0", {"cuda/bindings/driver.so": "sha256=new"})
    assert overwritten_files(tmp_path) == [
        Overwritten("cuda/bindings/driver.so", ("cuda_bindings-13.5.0", "cuda_python-12.6.2"))
    ]


def test_copies_of_one_file_and_bytecode_are_harmless(tmp_path: Path) -> None:
    install(tmp_path, "nvidia_nccl-2", {"nvidia/__init__.py": "sha256=empty", "nvidia/__init__.pyc": ""})
    install(tmp_path, "nvidia_cudnn-9", {"nvidia/__init__.py": "sha256=empty", "nvidia/__init__.pyc": ""})
    assert overwritten_files(tmp_path) == []


@pytest.mark.parametrize(("kind", "least"), [("cpu", 200), ("gpu", 200)])
def test_each_package_of_a_lock_is_pinned_by_version_and_hash(kind: str, least: int) -> None:
    lines = (CHECKOUT / "requirements" / f"{kind}.lock").read_text("utf-8").splitlines()
    pins = [number for number, line in enumerate(lines) if re.match("[a-z]", line)]
    assert len(pins) > least
    for number in pins:
        assert re.fullmatch(r"[\w.-]+==\S+ \\", lines[number])
        assert re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}( \\)?", lines[number + 1])
