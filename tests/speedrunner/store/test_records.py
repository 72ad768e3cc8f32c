"""Attempts in a ledger, and differences between modules of skills."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speedrunner.store.records import Module, apply_hunks, attempts, hunks
from speedrunner.store.stored_run import sleep_key


def test_the_highest_attempt_of_an_episode_is_known_from_the_ledger():
    labels = (
        {"episode": "train/0000", "attempt": "1"},
        {"episode": "train/0000", "attempt": "2"},
        {"episode": "train/0000", "attempt": "1"},
        {"episode": sleep_key(1), "attempt": "10"},
        {"role": "readiness"},
    )
    assert attempts(labels) == {"train/0000": 2, "sleep/0001": 10}


NAMES = st.lists(st.sampled_from(["go", "step", "_help", "far"]), unique=True).map(tuple)
SOURCES = st.lists(st.sampled_from(["", "import re", "def go():", "    look()", "+x"])).map("\n".join)
MODULES = st.builds(Module, SOURCES, NAMES, NAMES)


@given(MODULES, MODULES)
def test_what_differs_leads_from_one_to_the_other(one: Module, other: Module) -> None:
    assert apply_hunks(one, hunks(one, other)) == other
    assert hunks(one, one) == []


def test_of_a_large_library_that_grows_only_what_is_new_is_kept() -> None:
    def module(count: int, *imports: str) -> Module:
        skills = [f'def skill_{n}():\n    """Do {n}."""\n    return look({n})' for n in range(count)]
        names = tuple(f"skill_{n}" for n in range(count))
        return Module("\n\n\n".join([*imports, *skills]), names)

    found = hunks(module(300), module(301, "import re"))
    assert sum(len(cut.lines) for cut in found) < 20
