"""Does it keep to what a method promises? As `speedrunner check method my_method:MyMethod` does."""

from __future__ import annotations

from pathlib import Path

from speedrunner.cli.scaffold.my_method import MyMethod
from speedrunner.methods import Policy
from speedrunner.runs.method_check import check_method


def test_it_begins_with_nothing() -> None:
    assert MyMethod().initial() == Policy(version=0)


def test_it_conforms(tmp_path: Path) -> None:
    assert check_method([f"method={MyMethod.__module__}:MyMethod"], tmp_path) == []
