"""The console command before its modules are read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from speedrunner.cli.__main__ import main


class Interrupting:
    """A finder of modules during whose search Ctrl-C comes."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "speedrunner.cli.app":
            raise KeyboardInterrupt


def test_ctrl_c_while_modules_are_read_ends_it_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "speedrunner.cli.app", raising=False)
    monkeypatch.setattr("sys.meta_path", [Interrupting()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capfd.readouterr() == ("", "")


@pytest.mark.process
def test_a_foreign_library_in_pythonpath_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").touch()
    words = [sys.executable, "-c", "from speedrunner.cli.__main__ import main; main()", "list", "methods"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, env=environment, check=False, capture_output=True, text=True)
    line = f"; PYTHONPATH={tmp_path} may replace installed packages: unset it\n"
    assert (done.returncode, done.stderr.count("\n"), done.stderr.endswith(line)) == (1, 1, True)
