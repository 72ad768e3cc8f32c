"""The bundled hybrid model's recipe: `models/random/hybrid.py` as the command that it is."""

from __future__ import annotations

import filecmp
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.models.conftest import run_recipe

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
            {"type": "function", "function": {"name": "go", "arguments": {"steps": 2, "how": "slow\nly"}}},
            {
                "type": "function",
                "function": {"name": "go", "arguments": {"path": [["é", 1.5], {"x": True}]}},
            },
        ],
    },
    {"role": "tool", "content": "blocked"},
    {"role": "tool", "content": "a red ball"},
    {"role": "assistant", "content": "Found."},
    {"role": "user", "content": "Good."},
]
RENDERED = """\
<|im_start|>system
# Tools

You can call these functions; their signatures stand between <tools> and </tools>, one on each line:
<tools>
{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
{"type": "function", "function": {"name": "go", "description": "Walk – straight on.", "parameters": \
{"type": "object", "properties": {"steps": {"type": "integer"}}, "required": ["steps"]}}}
</tools>

To call one, write its name, and each argument under the name of its parameter, in this form:
<tool_call>
<function=NAME>
<parameter=NAME_OF_A_PARAMETER>
its value, on
one line or several
</parameter>
</function>
</tool_call>

Play the game.<|im_end|>
<|im_start|>user
Find the red ball.<|im_end|>
<|im_start|>assistant
<think>
Look first.
</think>

<tool_call>
<function=look>
</function>
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
a wall
</tool_response><|im_end|>
<|im_start|>assistant
<think>

</think>

Walking.

<tool_call>
<function=go>
<parameter=steps>
2
</parameter>
<parameter=how>
slow
ly
</parameter>
</function>
</tool_call>
<tool_call>
<function=go>
<parameter=path>
[["é", 1.5], {"x": true}]
</parameter>
</function>
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
blocked
</tool_response>
<tool_response>
a red ball
</tool_response><|im_end|>
<|im_start|>assistant
<think>

</think>

Found.<|im_end|>
<|im_start|>user
Good.<|im_end|>
"""


@pytest.fixture(scope="module")
def folder(hybrid_folder: Path) -> Path:
    return hybrid_folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_both_recipes_make_the_same_tokenizer_but_not_the_same_model(
    folder: Path, dense_folder: Path
) -> None:
    names = ["tokenizer.json", "chat_template.jinja", "model.safetensors", "recipe.json"]
    assert filecmp.cmpfiles(folder, dense_folder, names, shallow=False) == (names[:1], names[1:], [])


def test_a_build_in_place_of_the_other_recipe_s_has_the_same_bytes(
    folder: Path, dense_folder: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(dense_folder, tmp_path / "hybrid")
    assert run_recipe("hybrid.py", out).returncode == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in out.iterdir())
    assert filecmp.cmpfiles(folder, out, names, shallow=False) == (names, [], [])


def test_the_model_is_a_qwen3_next_with_linear_and_full_attention(folder: Path, tokenizer: Any) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert type(model).__name__ == "Qwen3NextForCausalLM"
    assert 1_500_000 < model.num_parameters() < 1_700_000
    assert not model.config.tie_word_embeddings
    assert model.config.layer_types == ["linear_attention"] * 3 + ["full_attention"]
    assert model.config.vocab_size == len(tokenizer) == 2048
    assert model.config.max_position_embeddings == 32_768
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.bfloat16"}


def test_generation_ends_at_the_end_of_a_turn(folder: Path, tokenizer: Any) -> None:
    end, pad = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert tokenizer.eos_token == "<|im_end|>"
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == end
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [end, pad]


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
        ({}, "<think>\n"),
        ({"enable_thinking": True}, "<think>\n"),
        ({"enable_thinking": False}, "<think>\n\n</think>\n\n"),
    ],
)
def test_the_generation_prompt_opens_the_thinking(
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
