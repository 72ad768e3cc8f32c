"""What the benches' commands read themselves."""

from __future__ import annotations

import pytest

from speedrunner.cli.bench import numbers
from speedrunner.config.schema import InvalidConfig


def test_numbers_are_ascending_and_none_comes_twice() -> None:
    assert numbers("--counts", "4,1,4") == [1, 4]


@pytest.mark.parametrize("text", ["", "1,,4", "0,4", "many"])
def test_what_is_no_list_of_numbers_is_told_with_the_option(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"--in-flight .*: write numbers with commas, such as 1,4,16"):
        numbers("--in-flight", text)
