"""`speedrunner library`: damaged libraries. See also the transcripts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.scripted_runs import ScriptedRun, complaint, in_process

pytestmark = pytest.mark.process

DEEP = f"X = {'-' * 5000}1"


def test_a_stored_version_that_breaks_the_rules_is_one_error(learnt: ScriptedRun, tmp_path: Path) -> None:
    run = shutil.copytree(learnt.dir, tmp_path / "run")
    module = run / "policies" / "v0002" / "skills.py"
    source = module.read_text()
    assert "import re" in source
    module.write_text(source.replace("import re", DEEP))
    failed = in_process("library", str(run), "2")
    assert complaint(failed).startswith(f"{run}: policy v0002 is no valid library: ")
    assert "nested too deeply" in failed.stderr
    assert failed.stdout == ""
