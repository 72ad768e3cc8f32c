"""Does it keep to what a method promises?"""

from __future__ import annotations

from speedrunner.cli.scaffold.check_method import check_method
from speedrunner.cli.scaffold.my_method import MyMethod
from speedrunner.methods import Policy


def test_it_begins_with_nothing() -> None:
    assert MyMethod().initial() == Policy(version=0)


def test_it_conforms() -> None:
    assert check_method(f"{MyMethod.__module__}:MyMethod") == []
