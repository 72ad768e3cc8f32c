"""How the engine's parser is asked; tests/engine/test_engine_flags.py asks the real one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from serving.engine.flags import flag_problems
from serving.errors import ServerFailed

pytestmark = pytest.mark.process


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that runs in place of Python with vLLM."""
    file = tmp_path / "python"
    file.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(file))
    return file


def test_an_engine_that_cannot_be_imported_is_quoted(engine: Path) -> None:
    engine.write_text("#!/bin/sh\necho Traceback >&2\necho 'ImportError: no vLLM' >&2\nexit 1\n")
    with pytest.raises(ServerFailed, match=r"^vLLM cannot be imported: ImportError: no vLLM$"):
        flag_problems({})
