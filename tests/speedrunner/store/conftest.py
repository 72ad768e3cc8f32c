from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import small_disk as disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 KiB."""
    with disks.small_disk(tmp_path / "small", 256) as disk:
        if not disk.is_mounted:
            pytest.skip("mounting needs root")
        yield disk.folder
