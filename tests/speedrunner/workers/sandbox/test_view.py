"""What an isolated process is shown of the machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from speedrunner.workers.sandbox import view
from speedrunner.workers.sandbox.view import Shown


def test_a_python_that_stands_apart_is_shown_without_packages_that_it_or_this_process_imports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prefix = tmp_path / "conda"
    for folder in ("lib/python3.11", "lib/tool/py/site-packages/vendor/site-packages", "bin", "pkgs"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "lib/python3.11/site-packages").symlink_to("../tool/py/site-packages")
    (prefix / "lib/python3.11/dist-packages").mkdir()
    (prefix / "lib/python3.1").symlink_to("python3.11")
    (prefix / "lib/own/lib/python3.11/site-packages").mkdir(parents=True)
    (prefix / "lib/program/lib/python3.9/site-packages").mkdir(parents=True)
    (prefix / "lib64").symlink_to("lib")
    (prefix / "bin/python3.11").touch()
    entries = (
        "own/lib/python3.11/site-packages/egg",
        "gone/site-packages",
        f"{'long' * 100}/site-packages",
        "python3.11/dist-packages/x/site-packages",
    )
    (prefix / "lib/python3.11/dist-packages/x/site-packages").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, "", *(str(prefix / "lib" / each) for each in entries)])
    monkeypatch.setattr(sys, "base_prefix", str(prefix))
    monkeypatch.setattr(sys, "_base_executable", str(prefix / "bin/python3.11"))
    assert [each for each in view.system.__wrapped__() if each.place.startswith("/python")] == [
        Shown("bind", "/python/bin", str(prefix / "bin")),
        Shown("bind", "/python/lib", str(prefix / "lib")),
        Shown("empty", "/python/lib/own/lib/python3.11/site-packages"),
        Shown("empty", "/python/lib/python3.11/dist-packages"),
        Shown("empty", "/python/lib/tool/py/site-packages"),
        Shown("link", "/python/lib64", "lib"),
    ]
    assert view.interpreter() == "/python/bin/python3.11"


def test_of_usr_only_programs_and_libraries_are_shown() -> None:
    places = {Path(each.place) for each in view.system() if each.place.startswith("/usr/")}
    assert {each.parts[2] for each in places} <= set(view.FOLDERS)
