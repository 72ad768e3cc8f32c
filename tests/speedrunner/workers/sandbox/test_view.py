"""What an isolated process is shown of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from speedrunner.workers.sandbox import view
from speedrunner.workers.sandbox.isolation import ISOLATING
from speedrunner.workers.sandbox.settings import Level, SandboxUnavailable
from speedrunner.workers.sandbox.view import interpreter
from tests.processes import HANGS_S

LOOK = """
import glob, importlib, os, sys
library = os.path.dirname(os.__file__)
failed = []
for file in glob.glob(library + '/lib-dynload/*.so'):
    name = os.path.basename(file).partition('.')[0]
    if name != '_tkinter':
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append(str(error))
others = [os.path.join(folder, name) for folder, _, names in os.walk('/') for name in names
          if not folder.startswith(library)]
packages = [each for each in sys.path if 'packages' in each]
print(failed, sorted(each for each in others if '.so' not in each), packages, sep='\\n')
"""


@pytest.mark.process
@pytest.mark.parametrize("level", ISOLATING)
def test_it_is_this_python_with_all_modules_of_its_library_and_nothing_else(level: Level) -> None:
    command = [*ISOLATING[level]({}), interpreter(), "-I", "-S", "-c", LOOK]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=HANGS_S)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[]", f"['/dev/null', '{interpreter()}']", "[]"]


def test_packages_in_the_folder_of_the_library_are_hidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "conda/lib/python3.11"
    (library / "dist-packages").mkdir(parents=True)
    (library / "site-packages").symlink_to(tmp_path)
    program = tmp_path / "conda/bin/python3.11"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "conda"))
    monkeypatch.setattr(sys, "_base_executable", str(program))
    with pytest.raises(SandboxUnavailable, match=r"outside of Python's prefix .*conda"):
        view.system.__wrapped__()
    monkeypatch.setattr(os, "__file__", str(library / "os.py"))
    assert view.system.__wrapped__()[:3] == (
        ("bind", "/python/bin/python3.11", str(program)),
        ("bind", "/python/lib/python3.11", str(library)),
        ("empty", "/python/lib/python3.11/dist-packages", ""),
    )
