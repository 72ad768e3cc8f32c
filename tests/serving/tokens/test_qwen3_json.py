"""Qwen3's JSON calls: what the grammar allows is exactly what the template writes and the parser reads."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.errors import InvalidCall
from serving.tokens.formats import ParsedCall
from serving.tokens.formats.json_value import LIST_ITEMS
from serving.tokens.formats.qwen3_json import call, parse
from serving.tokens.grammar import one_of
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import TOOL_REPLY, USER_TURN
from tests.grammar_walks import Walks, avoids, stretches
from tests.tool_samples import TOOLS

TENDENCIES = {
    "evenly": None,
    "towards broken characters": stretches,
    "towards long strings": avoids(b'"'),
    "towards long lists": avoids(b"]", b"}"),
}


@pytest.fixture(scope="module")
def walks(tiny_folder: str) -> Walks:
    return Walks(tiny_folder)


def check_walk(walks: Walks, tool: ToolSpec, string_tokens: int, seed: str, tendency: str) -> int:
    """One walk, checked in every respect; its length."""
    part = call(tool, string_tokens)
    ids = walks.walk(part, random.Random(seed), TENDENCIES[tendency])
    assert len(ids) <= part.tokens + 1
    text = walks.join(ids).decode()  # raises on broken UTF-8
    found = parse(text, TOOLS)
    assert found.name == tool.name
    assert tool.problem_with(found.arguments) is None
    keys = list(found.arguments)
    assert keys == [key for key in tool.parameters["properties"] if key in keys]
    return len(ids)


@pytest.mark.parametrize("tendency", TENDENCIES)
@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_every_walk_ends_within_the_bound_as_a_valid_call(
    walks: Walks, tool: ToolSpec, tendency: str
) -> None:
    for number in range(10):
        for string_tokens in (1, 12):
            check_walk(walks, tool, string_tokens, f"{tool.name}{number}", tendency)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tool=st.sampled_from(list(TOOLS.values())),
    string_tokens=st.integers(1, 40),
    seed=st.integers(0, 2**32),
    tendency=st.sampled_from(list(TENDENCIES)),
)
def test_walks_with_any_bound_are_valid_calls(
    walks: Walks, tool: ToolSpec, string_tokens: int, seed: int, tendency: str
) -> None:
    check_walk(walks, tool, string_tokens, str(seed), tendency)


def test_a_choice_of_tools_reaches_each_of_them(walks: Walks) -> None:
    part = one_of(*(call(tool, 5) for tool in TOOLS.values()))
    rng = random.Random(0)
    seen = {parse(walks.join(walks.walk(part, rng)).decode(), TOOLS).name for _ in range(100)}
    assert seen == set(TOOLS)


def test_strings_can_use_up_their_bound_and_end_there(walks: Walks) -> None:
    part = call(TOOLS["say"], 200)
    rng = random.Random(0)
    lengths = [len(walks.walk(part, rng, avoids(b'"'))) for _ in range(3)]
    assert min(lengths) > 200


def test_the_bound_does_not_reach_beyond_one_string(walks: Walks) -> None:
    part = call(TOOLS["strings"], 3)
    text = walks.join(walks.walk(part, random.Random(1), avoids(b"]"))).decode()
    assert len(parse(text, TOOLS).arguments["items"]) == LIST_ITEMS


TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from('"\\/\n\t\r\b\f\x00\x1f\x7f\u2028\ue000\uffff😀<|im_end|></tool_call>'),
    )
)
ARGUMENTS = st.one_of(
    st.tuples(st.just("say"), st.fixed_dictionaries({"text": TEXTS})),
    st.tuples(
        st.just("numbers"),
        st.fixed_dictionaries(
            {
                "a": st.integers(-(10**15) + 1, 10**15 - 1),
                "b": st.one_of(
                    st.floats(1e-99, 1e99), st.floats(-1e99, -1e-99), st.integers(-(10**15), 10**15)
                ),
            }
        ),
    ),
    st.tuples(
        st.just("first_optional"),
        st.fixed_dictionaries({"c": st.booleans()}, optional={"a": TEXTS, "b": st.integers(-9, 9)}),
    ),
    st.tuples(
        st.just("all_optional"),
        st.fixed_dictionaries({}, optional={"a": TEXTS, "b": st.integers(-9, 9), "c": st.booleans()}),
    ),
    st.tuples(st.just("strings"), st.fixed_dictionaries({"items": st.lists(TEXTS, max_size=LIST_ITEMS)})),
)


@functools.cache
def template(folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def rendered(folder: str, name: str, arguments: dict[str, Any]) -> str:
    """What the model's chat template writes for a call."""
    message = {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
    text = template(folder).apply_chat_template([message], tokenize=False)
    return str(text).removeprefix("<|im_start|>assistant\n").removesuffix("<|im_end|>\n")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=ARGUMENTS)
def test_the_grammar_allows_what_the_template_writes_and_the_parser_reads_it_back(
    walks: Walks, tiny_folder: str, made: tuple[str, dict[str, Any]]
) -> None:
    name, unordered = made
    arguments = {key: unordered[key] for key in TOOLS[name].parameters["properties"] if key in unordered}
    text = rendered(tiny_folder, name, arguments)
    assert walks.accepts(call(TOOLS[name], 10_000), text)
    assert parse(text, TOOLS) == ParsedCall(name, arguments)


@pytest.mark.parametrize("tendency", ["evenly", "towards broken characters"])
@pytest.mark.parametrize("name", ["nothing", "say", "first_optional", "all_optional", "strings", "grid"])
def test_the_grammar_allows_nothing_that_the_template_would_write_in_another_way(
    walks: Walks, tiny_folder: str, name: str, tendency: str
) -> None:
    rng = random.Random(name)
    for _ in range(10):
        text = walks.join(walks.walk(call(TOOLS[name], 15), rng, TENDENCIES[tendency])).decode()
        assert rendered(tiny_folder, name, parse(text, TOOLS).arguments) == text


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
    assert not walks.accepts(call(TOOLS[name], 50), text)


READ = [
    '<tool_call>\n{"name": "say", "arguments": {"text": "a"}}\n</tool_call>',
    '\n<tool_call>{"arguments":{"text":"a"},"name":"say"}</tool_call>\n ',
    '<tool_call>\n{"name": "say", "arguments": {"text": "\\u0061"}}\n</tool_call>',
]


@pytest.mark.parametrize("text", READ)
def test_calls_that_no_grammar_constrained_are_read_too(text: str) -> None:
    assert parse(text, TOOLS) == ParsedCall("say", {"text": "a"})


def test_a_string_may_hold_the_words_of_the_format() -> None:
    code = 'x = "</tool_call>\\n<tool_call><|im_end|></think>"\n\treturn {"é": 1}'
    text = f'<tool_call>\n{{"name": "say", "arguments": {json.dumps({"text": code})}}}\n</tool_call>'
    assert parse(text, TOOLS).arguments == {"text": code}


UNREADABLE = [
    ("", "not one tool call"),
    ("go left", "not one tool call"),
    ('{"name": "say", "arguments": {"text": "a"}}', "not one tool call"),
    ('I say: <tool_call>{"name": "nothing", "arguments": {}}</tool_call>', "not one tool call"),
    ("<tool_call>", "not one tool call"),
    ("<tool_call></tool_call>", "not readable"),
    ("<tool_call>{</tool_call>", "not readable"),
    ('<tool_call>{"name": "nothing"}</tool_call>', "not readable.*arguments"),
    ('<tool_call>{"name": "nothing", "arguments": []}</tool_call>', "not readable"),
    ('<tool_call>{"name": "say", "arguments": {"text": "\ud800"}}</tool_call>', "not readable"),
    ('<tool_call>{"name": "say", "arguments": {"text": "\\ud800"}}</tool_call>', "not readable"),
    ('<tool_call>{"name": "numbers", "arguments": {"a": 1, "b": NaN}}</tool_call>', "not readable"),
    (
        '<tool_call>{"name": "nothing", "arguments": {}}</tool_call>\n'
        '<tool_call>{"name": "nothing", "arguments": {}}</tool_call>',
        "not readable",
    ),
    ('<tool_call>{"name": "fly", "arguments": {}}</tool_call>', "no tool 'fly'; tools: nothing, say"),
    ('<tool_call>{"name": "say", "arguments": {}}</tool_call>', "say: argument 'text' is missing"),
    ('<tool_call>{"name": "say", "arguments": {"text": 1}}</tool_call>', "say: 1 at text is not of type"),
]


@pytest.mark.parametrize(("text", "problem"), UNREADABLE)
def test_everything_else_is_an_invalid_call_that_keeps_its_text(text: str, problem: str) -> None:
    with pytest.raises(InvalidCall, match=problem) as caught:
        parse(text, TOOLS)
    assert caught.value.text == text
    assert "\n" not in str(caught.value)


def test_replies_are_framed_as_the_template_frames_them(
    tiny_folder: str, tiny_tokenizer: ChatTokenizer
) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "a wall"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "call a tool"},
    ]
    whole = template(folder=tiny_folder).apply_chat_template(messages, tokenize=False)
    (before, after), (open_, close) = TOOL_REPLY, USER_TURN
    opening = "<|im_start|>assistant\n"
    assert f"a<|im_end|>{before}a wall{after}{opening}b<|im_end|>{open_}call a tool{close}" in whole
