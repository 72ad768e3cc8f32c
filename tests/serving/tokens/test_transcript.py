"""A conversation as ids that only grow."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from serving.errors import TruncatedCall
from serving.model_config import ThinkingStyle
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec
from serving.tokens.transcript import Transcript
from tests.grammar_walks import Walks, avoids
from tests.scripted_engine import Answer, call
from tests.tool_samples import STRING, record
from tests.transcript_samples import transcript_of

GO = ToolSpec("go", "Go somewhere.", record("to", to=STRING))
MESSAGES = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Begin."}]


@pytest.fixture(scope="module")
def tiny_walks(tiny_folder: str) -> Walks:
    return Walks(tiny_folder)


def transcript(
    tokenizer: ChatTokenizer,
    style: ThinkingStyle = "generated",
    thinking_tokens: int = 0,
    **fields: Any,
) -> Transcript:
    return transcript_of(tokenizer, MESSAGES, [GO], thinking_tokens=thinking_tokens, thinking=style, **fields)


def ids_of(tokenizer: ChatTokenizer, text: str, ended: bool = True) -> list[int]:
    return tokenizer.framed(text + ("<|im_end|>" if ended else ""))


def test_an_answer_is_read_whatever_ids_spell_it(tiny_tokenizer: ChatTokenizer) -> None:
    text = Answer(calls=call("go", to="x").calls, thinking="so").written
    end = tiny_tokenizer.control_id("<|im_end|>")
    spellings = [
        tiny_tokenizer.framed(text),
        tiny_tokenizer.outside_text(text),
        [token for letter in text for token in tiny_tokenizer.outside_text(letter)],
    ]
    assert len({tuple(ids) for ids in spellings}) == 3
    for ids in spellings:
        answer = transcript(tiny_tokenizer, thinking_tokens=9).answer([*ids, end])
        assert answer.call == ToolCall("go", {"to": "x"})
        assert answer.reasoning == "so"
        reasoning = tiny_tokenizer.decode(ids[: answer.reasoning_tokens])
        assert reasoning.startswith("<think>\nso\n</think>")
        assert "</think>" not in tiny_tokenizer.decode(ids[: answer.reasoning_tokens - 1])


@pytest.mark.parametrize("style", ["generated", "prompted"])
@pytest.mark.parametrize(("words", "cut"), [(3, False), (20, True)])
def test_thinking_that_takes_its_whole_budget_was_cut(
    tiny_tokenizer: ChatTokenizer, style: ThinkingStyle, words: int, cut: bool
) -> None:
    begin = "<think>\n" if style == "generated" else ""
    thought = tiny_tokenizer.outside_text("hm " * words)[: 12 if cut else None]
    ids = [
        *ids_of(tiny_tokenizer, begin)[:-1],
        *thought,
        *ids_of(tiny_tokenizer, f"\n</think>\n\n{call('go', to='x').written}"),
    ]
    answer = transcript(tiny_tokenizer, style, 12).answer(ids)
    assert answer.call == ToolCall("go", {"to": "x"})
    assert answer.thought_cut is cut


@pytest.mark.parametrize("tool_format", ["qwen3_json", "qwen3_xml"])
@pytest.mark.parametrize(("tokens", "cut"), [(9, ()), (20, ("to",))])
def test_a_string_that_has_all_tokens_that_it_may_have_was_cut(
    tiny_tokenizer: ChatTokenizer, tool_format: str, tokens: int, cut: tuple[str, ...]
) -> None:
    line = 'a "b"\né ' if tool_format == "qwen3_xml" else "a box in a hall "
    value = tiny_tokenizer.decode(tiny_tokenizer.outside_text(line * 20)[:tokens]).rstrip("\ufffd")
    talk = transcript(tiny_tokenizer, tool_format=tool_format)
    said = f'<tool_call>\n{{"name": "go", "arguments": {{"to": {json.dumps(value)}}}}}\n</tool_call>'
    if tool_format == "qwen3_xml":
        said = "<tool_call>\n<function=go>\n<parameter=to>\n" + value
        said += "\n</parameter>\n</function>\n</tool_call>"
    call = talk.answer(ids_of(tiny_tokenizer, said)).call
    assert call == ToolCall("go", {"to": value}, cut)


def test_a_cut_answer_is_closed_and_answered_as_a_user_would(tiny_tokenizer: ChatTokenizer) -> None:
    talk = transcript(tiny_tokenizer)
    prompt = list(talk.ids)
    ids = ids_of(tiny_tokenizer, call("go", to="far away").written, ended=False)[:-3]
    answer = talk.answer(ids)
    assert isinstance(answer.problem, TruncatedCall)
    assert answer.call is None
    assert f"cut after {len(ids)} tokens" in str(answer.problem)
    assert answer.problem.text == answer.text == tiny_tokenizer.decode(ids)
    talk.tell("write less")
    end = tiny_tokenizer.control_id("<|im_end|>")
    assert talk.ids[: len(prompt) + len(ids) + 1] == [*prompt, *ids, end]
    assert "<|im_end|>\n<|im_start|>user\nwrite less<|im_end|>\n" in talk.text


def test_an_answer_cut_while_thinking_is_all_reasoning(tiny_tokenizer: ChatTokenizer) -> None:
    ids = ids_of(tiny_tokenizer, "<think>\nhm hm", ended=False)
    answer = transcript(tiny_tokenizer, thinking_tokens=9).answer(ids)
    assert (answer.reasoning, answer.text, answer.reasoning_tokens) == ("hm hm", "", len(ids))
    assert isinstance(answer.problem, TruncatedCall)


THOUGHTS = ["Hm.", "", "  I walk.\nAnd on.  "]


@pytest.mark.parametrize(
    ("style", "begin", "thoughts"),
    [
        ("none", "", None),
        ("none", "", [*THOUGHTS, "I walk.\n"]),
        ("generated", "", None),
        ("generated", "<think>\n", THOUGHTS),
        ("prompted", "", THOUGHTS),
    ],
)
def test_what_was_read_of_an_answer_is_enough_to_write_it_again(
    tiny_tokenizer: ChatTokenizer, style: ThinkingStyle, begin: str, thoughts: list[str] | None
) -> None:
    talk = transcript(tiny_tokenizer, style, thinking_tokens=0 if thoughts is None else 32)
    end = "" if style == "none" or thoughts is None else "\n</think>\n\n"
    for thought in thoughts or [""]:
        for text in (call("go", to="</think>").written, "No call."):
            written = f"{begin}{thought}{end}{text}"
            answer = talk.answer(ids_of(tiny_tokenizer, written))
            assert talk.written(answer.reasoning, answer.text) == written
            if style != "none":
                assert (answer.reasoning, answer.text) == (thought, text)
            assert answer.call == (ToolCall("go", {"to": "</think>"}) if text != "No call." else None)
            talk.tell("Go on.")


CLOSING = "\n\nTime is up."


@pytest.mark.parametrize(("style", "begin"), [("generated", "<think>\n"), ("prompted", "")])
def test_thinking_that_takes_its_whole_budget_ends_with_the_closing_text(
    tiny_tokenizer: ChatTokenizer, tiny_walks: Walks, style: ThinkingStyle, begin: str
) -> None:
    talk = transcript(tiny_tokenizer, style, 12, thinking_closing=CLOSING)
    endless = avoids(b"<", b"\n")
    for seed in range(20):
        # A random model never ends its thinking by itself.
        ids = tiny_walks.walk(talk.grammar, random.Random(seed), endless)
        assert len(ids) <= talk.answer_tokens
        prompt = list(talk.ids)
        answer = talk.answer(ids)
        assert talk.ids == prompt + ids
        assert answer.thought_cut
        assert answer.reasoning.endswith(CLOSING)
        # The budget is the thinking's own; the closing text comes on top.
        own = answer.reasoning.removesuffix(CLOSING)
        assert tiny_tokenizer.decode(ids).startswith(f"{begin}{own}{CLOSING}\n</think>\n\n<tool_call>")
        assert talk.written(answer.reasoning, answer.text) == tiny_tokenizer.decode(ids[:-1])
        talk.tell("a wall")
    assert tiny_walks.accepts(talk.grammar, f"{begin}so\n</think>\n\n{call('go', to='x').written}")
