"""JSON values in calls: what the formats' own tests do not show of them."""

from __future__ import annotations

from serving.tokens.formats import json_value
from serving.tokens.grammar import structural_tag
from tests.tool_samples import STRING


def test_masks_do_not_slow_down_with_the_bound() -> None:
    # One starred class a run of plain characters: a star over both these and escapes costs a walk through
    # the vocabulary for each token.
    body = next(line for line in json_value._STRING.splitlines() if line.startswith("body"))
    plain, _, rest = body.partition("::=")[2].strip().partition("* ")
    assert rest == f'("\\\\" escape {plain}*)*'
    assert len(structural_tag(json_value.json_value(STRING, 2000))) < 1000
