"""Episodes leave nothing behind in their process. `make soak N=...` plays more, and measures the time too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos import soak


@pytest.mark.slow
def test_runs_leave_nothing_in_their_process(tmp_path: Path) -> None:
    # The first run fills caches. Other tests may have left shared helpers of this process, so what counts is
    # that nothing is added.
    _, first, *_, last = asyncio.run(soak.play(4 * soak.ROLLOUTS, tmp_path))
    assert not soak.has_grown(first, last)
    assert last.memory - first.memory < 16
