"""The console command before its modules are read."""

from __future__ import annotations

import sys

import pytest

from speedrunner.cli.__main__ import main
from tests.scripted_runs import complaint, in_process


class Interrupting:
    """A finder of modules that is interrupted while it looks for the command."""

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


@pytest.mark.parametrize("words", ["run run.dir=NAME", "sweep NAME", "run model=NAME.yaml"])
def test_a_name_that_is_too_long_for_a_file_is_one_line(words: str) -> None:
    error = complaint(in_process(*words.replace("NAME", "x" * 300).split(), "env=babyai"))
    assert error.startswith("this name is too long for a file: xxx")
