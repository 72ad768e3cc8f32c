"""The console command before its modules are read."""

from __future__ import annotations

import sys

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
