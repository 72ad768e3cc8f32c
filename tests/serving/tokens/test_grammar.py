"""Building blocks of structural tags, walked with the engine's own grammar library."""

from __future__ import annotations

import random
import re

import pytest

from serving.tokens.formats import CHATML
from serving.tokens.grammar import (
    Part,
    constant,
    free_text,
    grammar,
    one_of,
    optional,
    regex,
    repeated,
    sequence,
    thinking,
)
from tests.grammar_walks import Walks, avoids, stretches
from tests.serving.conftest import Served


@pytest.fixture(scope="module")
def walks(qwen_json: Served) -> Walks:
    return qwen_json.walks


AB = one_of(constant("a"), constant("béé"))

ACCEPTED = [
    (constant("é\n"), ["é\n"], ["é", "e\n", ""]),
    (AB, ["a", "béé"], ["", "abéé", "b"]),
    (optional(constant("a")), ["", "a"], ["aa"]),
    (sequence(constant("x"), AB, constant("y")), ["xay", "xbééy"], ["xy", "xayy"]),
    (repeated(constant("ab"), 3), ["", "ab", "ababab"], ["a", "abababab"]),
    (regex("-?[0-9]{1,3}", 4), ["7", "-123"], ["", "1234"]),
    (grammar('root ::= "<" [a-z]* ">"', 10), ["<>", "<abc>"], ["<", "<A>"]),
    (free_text(10, ("no",)), ["", "n o", "é"], ["no", "a no b"]),
]


@pytest.mark.parametrize(("part", "good", "bad"), ACCEPTED, ids=lambda value: str(value)[:40])
def test_each_part_allows_what_it_says(walks: Walks, part: Part, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not walks.accepts(part, text)] == []
    assert [text for text in bad if walks.accepts(part, text)] == []


def test_bounds_count_the_worst_case() -> None:
    assert constant("é").tokens == 2
    assert one_of(constant("a"), constant("bcd")).tokens == 3
    assert sequence(constant("a"), optional(constant("bc"))).tokens == 3
    assert repeated(constant("ab"), 3).tokens == 6
    assert free_text(7, ()).tokens == 7
    assert thinking(7, "<think>\n", "\n</think>\n\n", ()).tokens == 7 + 8 + 11


FRAME = re.compile(rb"(<think>\n)?(.*)\n</think>\n\n!", re.DOTALL)
TEMPTATIONS = {
    "evenly": None,
    "towards broken characters": stretches,
    "away from its end": avoids(b"\n", b"<"),
    "towards control texts": lambda token: any(sign in token for sign in (b"<", b"think", b"/", b"|")),
}


@pytest.mark.parametrize("tendency", TEMPTATIONS)
@pytest.mark.parametrize("begin", ["<think>\n", ""])
@pytest.mark.parametrize("budget", [1, 5, 60])
def test_thinking_ends_within_its_budget_and_holds_no_control_text(
    walks: Walks, budget: int, begin: str, tendency: str
) -> None:
    part = sequence(thinking(budget, begin, "\n</think>\n\n", CHATML.controls), constant("!"))
    rng = random.Random(f"{budget}{begin}{tendency}")
    for _ in range(15):
        ids = walks.walk(part, rng, TEMPTATIONS[tendency])
        assert len(ids) <= part.tokens + 1
        found = FRAME.fullmatch(walks.join(ids))
        assert found
        assert bool(found[1]) == bool(begin)
        assert not any(text.encode() in found[2] for text in CHATML.controls)
