"""Finds files that several installed packages own with different content. The last one installed wins."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Overwritten(msgspec.Struct, frozen=True):
    """A file that packages disagree about.

    Attributes:
        path: relative to site-packages.
        owners: names and versions of the packages whose wheels hold it.
    """

    path: str
    owners: tuple[str, ...]


def overwritten_files(site_packages: Path) -> list[Overwritten]:
    """Return all files that at least two packages own with different content, sorted by path.

    Files are compared by the hashes that the packages' `RECORD` files hold. Copies with the same hash are
    harmless: package families such as `nvidia-*` repeat empty `__init__.py` files. Rows without a hash are
    skipped: by the wheel format those are `RECORD` itself and compiled bytecode.
    """
    hashes: Mapping[str, dict[str, str]] = defaultdict(dict)
    for record in site_packages.glob("*.dist-info/RECORD"):
        package = record.parent.name.removesuffix(".dist-info")
        with record.open(encoding="utf-8", newline="") as rows:
            for path, digest, *_ in csv.reader(rows):
                if digest:
                    hashes[path][package] = digest
    return [
        Overwritten(path, tuple(sorted(owners)))
        for path, owners in sorted(hashes.items())
        if len(set(owners.values())) > 1
    ]
