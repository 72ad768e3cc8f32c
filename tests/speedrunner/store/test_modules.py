from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speedrunner.store.modules import apply_hunks, hunks
from speedrunner.store.records import Module

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
