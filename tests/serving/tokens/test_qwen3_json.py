"""Qwen3's JSON calls: what the grammar allows is exactly what the template writes and the parser reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from serving.tokens.formats.json_calls import QWEN
from serving.tokens.tools import ToolCall
from tests.golden_tables import Golden, table
from tests.grammar_walks import Walks, stretches
from tests.serving.conftest import Served
from tests.tool_samples import TOOLS, invalid_calls


@pytest.fixture(scope="module")
def walks(qwen_json: Served) -> Walks:
    return qwen_json.walks


@pytest.mark.parametrize("tendency", [None, stretches], ids=["evenly", "towards broken characters"])
@pytest.mark.parametrize("name", ["first_optional", "all_optional"])
def test_the_grammar_allows_booleans_as_the_template_writes_them(
    qwen_json: Served, name: str, tendency: Callable[[bytes], bool] | None
) -> None:
    for number in range(10):
        text = qwen_json.walk(QWEN.call(TOOLS[name], 15), f"{name}{number}", tendency)
        assert text == qwen_json.rendered(name, QWEN.parse(text, TOOLS).arguments)


FORBIDDEN = [
    ("say", '{"text": "\\u0041"}'),
    ("say", '{"text": "\\/"}'),
    ("say", '{"text": "\\ud800"}'),
    ("say", '{"text":"a"}'),
    ("say", '{"text": "a" }'),
    ("say", '{"text": "a", "more": 1}'),
    ("say", '{"text": "a\nb"}'),
    ("say", "{}"),
    ("numbers", '{"a": 1.0, "b": 1}'),
    ("numbers", '{"a": -0, "b": 1}'),
    ("numbers", '{"a": 01, "b": 1}'),
    ("numbers", '{"b": 1, "a": 1}'),
    ("numbers", '{"a": 1, "b": NaN}'),
    ("first_optional", '{, "c": true}'),
    ("first_optional", '{"a": "x" "c": true}'),
    ("all_optional", '{"a": "x", }'),
    ("all_optional", '{"c": True}'),
    ("nothing", "{ }"),
]


@pytest.mark.parametrize(("name", "arguments"), FORBIDDEN)
def test_other_spellings_are_not_allowed(walks: Walks, name: str, arguments: str) -> None:
    text = f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
    assert not walks.accepts(QWEN.call(TOOLS[name], 50), text)


READ = [
    '<tool_call>\n{"name": "say", "arguments": {"text": "a"}}\n</tool_call>',
    '\n<tool_call>{"arguments":{"text":"a"},"name":"say"}</tool_call>\n ',
    '<tool_call>\n{"name": "say", "arguments": {"text": "\\u0061"}}\n</tool_call>',
]


@pytest.mark.parametrize("text", READ)
def test_calls_that_no_grammar_constrained_are_read_too(text: str) -> None:
    assert QWEN.parse(text, TOOLS) == ToolCall("say", {"text": "a"})


UNREADABLE = [
    "",
    "go left",
    '{"name": "say", "arguments": {"text": "a"}}',
    'I say: <tool_call>{"name": "nothing", "arguments": {}}</tool_call>',
    "<tool_call>",
    "<tool_call></tool_call>",
    "<tool_call>{</tool_call>",
    '<tool_call>{"name": "nothing"}</tool_call>',
    '<tool_call>{"name": "nothing", "arguments": []}</tool_call>',
    '<tool_call>{"name": "say", "arguments": {"text": "\ud800"}}</tool_call>',
    '<tool_call>{"name": "say", "arguments": {"text": "\\ud800"}}</tool_call>',
    '<tool_call>{"name": "numbers", "arguments": {"a": 1, "b": NaN}}</tool_call>',
    (
        '<tool_call>{"name": "nothing", "arguments": {}}</tool_call>\n'
        '<tool_call>{"name": "nothing", "arguments": {}}</tool_call>'
    ),
    '<tool_call>{"name": "fly", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "say", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "say", "arguments": {"text": 1}}</tool_call>',
]


def test_everything_else_is_an_invalid_call_that_keeps_its_text(golden: Golden) -> None:
    golden("tool_calls/invalid_qwen3_json.txt", table(invalid_calls(QWEN.parse, UNREADABLE)))
