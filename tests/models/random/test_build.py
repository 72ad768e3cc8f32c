"""The bundled CPU model's recipe: `models/random/build.py` as the command that it is."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.conftest import run_recipe

CONTROL = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
]

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
GO = {
    "type": "function",
    "function": {
        "name": "go",
        "description": "Walk – straight on.",
        "parameters": {"type": "object", "properties": {"steps": {"type": "integer"}}, "required": ["steps"]},
    },
}
CONVERSATION = [
    {"role": "system", "content": "Play the game."},
    {"role": "user", "content": "Find the red ball."},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Look first.",
        "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {}}}],
    },
    {"role": "tool", "content": "a wall"},
    {
        "role": "assistant",
        "content": "Walking.",
        "tool_calls": [
            {"type": "function", "function": {"name": "go", "arguments": {"steps": 2}}},
            {"type": "function", "function": {"name": "go", "arguments": '{"steps": 1}'}},
        ],
    },
    {"role": "tool", "content": "blocked"},
    {"role": "tool", "content": "a red ball"},
    {"role": "assistant", "content": "Found."},
    {"role": "user", "content": "Good."},
]
RENDERED = """\
<|im_start|>system
Play the game.

# Tools

You can call these functions; their signatures stand between <tools> and </tools>, one on each line:
<tools>
{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
{"type": "function", "function": {"name": "go", "description": "Walk – straight on.", "parameters": \
{"type": "object", "properties": {"steps": {"type": "integer"}}, "required": ["steps"]}}}
</tools>

To call one, write its name and its arguments as one JSON object between <tool_call> and </tool_call>:
<tool_call>
{"name": <name>, "arguments": <arguments>}
</tool_call><|im_end|>
<|im_start|>user
Find the red ball.<|im_end|>
<|im_start|>assistant
<think>
Look first.
</think>

<tool_call>
{"name": "look", "arguments": {}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
a wall
</tool_response><|im_end|>
<|im_start|>assistant
Walking.
<tool_call>
{"name": "go", "arguments": {"steps": 2}}
</tool_call>
<tool_call>
{"name": "go", "arguments": {"steps": 1}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
blocked
</tool_response>
<tool_response>
a red ball
</tool_response><|im_end|>
<|im_start|>assistant
Found.<|im_end|>
<|im_start|>user
Good.<|im_end|>
"""


@pytest.fixture(scope="module")
def folder(dense_folder: Path) -> Path:
    return dense_folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_building_leaves_the_model_folder_and_nothing_else(folder: Path) -> None:
    assert [path.name for path in folder.parent.iterdir()] == ["tiny-random"]
    assert {path.name for path in folder.iterdir()} >= {
        *("config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    }


def test_a_build_in_place_of_another_recipe_s_has_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny-random"
    out.mkdir()
    (out / "recipe.json").write_text("{}")
    (out / "stale").touch()
    assert run_recipe("build.py", out).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-random"]
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in out.iterdir())
    assert filecmp.cmpfiles(folder, out, names, shallow=False) == (names, [], [])


def test_a_finished_build_is_left_as_it_is(folder: Path) -> None:
    before = (folder / "model.safetensors").stat()
    again = run_recipe("build.py", folder)
    assert again.stdout == ""
    assert (folder / "model.safetensors").stat() == before


def test_a_folder_that_is_not_a_build_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused = run_recipe("build.py", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"error: {tmp_path} exists and was not built by this recipe: name another folder, or remove it\n"
    )
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_model_is_a_qwen3_of_about_two_million_parameters(folder: Path, tokenizer: Any) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert 1_900_000 < model.num_parameters() < 2_100_000
    assert model.config.vocab_size == len(tokenizer) == 2048
    assert model.config.max_position_embeddings == 32_768
    assert model.config.head_dim == 32
    assert model.config.tie_word_embeddings
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.float32"}


def test_generation_ends_at_the_end_of_a_turn(folder: Path, tokenizer: Any) -> None:
    end, pad = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert tokenizer.eos_token == "<|im_end|>"
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == end
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [end, pad]


def test_control_tokens_are_one_token_each_and_take_the_last_ids(tokenizer: Any) -> None:
    assert [tokenizer.encode(token) for token in CONTROL] == [
        [2048 - len(CONTROL) + i] for i in range(len(CONTROL))
    ]


def test_only_the_turn_markers_are_special(tokenizer: Any) -> None:
    ids = tokenizer.encode("".join(CONTROL))
    assert tokenizer.decode(ids, skip_special_tokens=True) == "".join(CONTROL[3:])


@given(st.text())
def test_any_text_survives_the_round_trip(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_byte_is_a_token_of_its_own(tokenizer: Any) -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert set(ByteLevel.alphabet()) <= set(tokenizer.get_vocab())
    assert len(ByteLevel.alphabet()) == 256


def test_a_game_line_takes_few_tokens(tokenizer: Any) -> None:
    assert len(tokenizer.encode("a red ball 2 steps left and 3 steps forward")) <= 12
    assert len(tokenizer.encode('<tool_call>\n{"name": "turn_left", "arguments": {}}\n</tool_call>')) <= 18


def test_the_template_renders_a_whole_tool_conversation(tokenizer: Any) -> None:
    assert tokenizer.apply_chat_template(CONVERSATION, tools=[LOOK, GO], tokenize=False) == RENDERED


def test_a_longer_conversation_begins_with_the_shorter_one(tokenizer: Any) -> None:
    for turns in range(2, len(CONVERSATION)):
        if CONVERSATION[turns]["role"] == CONVERSATION[turns - 1]["role"] == "tool":
            continue  # neighbouring tool results share a turn, which the first one alone closes
        text = tokenizer.apply_chat_template(CONVERSATION[:turns], tools=[LOOK, GO], tokenize=False)
        assert RENDERED.startswith(text)


@pytest.mark.parametrize(
    ("thinking", "opening"),
    [
        ({}, ""),
        ({"enable_thinking": True}, ""),
        ({"enable_thinking": False}, "<think>\n\n</think>\n\n"),
    ],
)
def test_the_generation_prompt_opens_the_reply(
    tokenizer: Any, thinking: dict[str, bool], opening: str
) -> None:
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Go."}], tokenize=False, add_generation_prompt=True, **thinking
    )
    assert text == "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n" + opening


def test_without_tools_the_system_text_stands_alone(tokenizer: Any) -> None:
    text = tokenizer.apply_chat_template(CONVERSATION[:2], tokenize=False)
    assert text == (
        "<|im_start|>system\nPlay the game.<|im_end|>\n<|im_start|>user\nFind the red ball.<|im_end|>\n"
    )


def test_an_unknown_role_is_refused_by_name(tokenizer: Any) -> None:
    with pytest.raises(Exception, match="unknown role robot: use system, user, assistant or tool"):
        tokenizer.apply_chat_template([{"role": "robot", "content": "Beep."}], tokenize=False)
