"""Each tier reads the files that have tests of it, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiers import is_outside

CHECK, TEST, SLOW = "not slow and not process", "not slow", "slow"

ONE_SLOW = "@pytest.mark.slow\ndef test_it() -> None: ...\n"
ALL_SLOW = "pytestmark = [pytest.mark.process, pytest.mark.slow]\n"
ALL_PROCESS = "pytestmark = pytest.mark.process\n"


@pytest.mark.parametrize(
    ("text", "starts_processes", "tiers"),
    [
        ("", False, {CHECK, TEST}),
        ("", True, {TEST}),
        (ONE_SLOW, False, {CHECK, TEST, SLOW}),
        (ALL_SLOW, False, {SLOW}),
        (ALL_PROCESS, False, {TEST}),
        (ALL_PROCESS + ONE_SLOW, False, {TEST, SLOW}),
    ],
)
def test_a_file_is_read_where_it_has_tests(
    text: str, starts_processes: bool, tiers: set[str], tmp_path: Path
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(text)
    found = {tier for tier in (CHECK, TEST, SLOW) if not is_outside(tier, file, starts_processes)}
    assert found == tiers
    assert not is_outside("", file, starts_processes)
