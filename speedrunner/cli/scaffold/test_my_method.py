"""What can be tested without a model. `speedrunner verify` checks a played run."""

from __future__ import annotations

from speedrunner.cli.scaffold.my_method import MyMethod
from speedrunner.methods import Policy


def test_it_begins_with_nothing() -> None:
    assert MyMethod(llm_calls=3).initial() == Policy(version=0)
