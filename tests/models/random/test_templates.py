"""The chat templates of both random models, and how their generation ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.bundled_models import bundled_folder

pytestmark = [pytest.mark.process, pytest.mark.slow]

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
GO = {
    "type": "function",
    "function": {
        "name": "go",
        "description": "Walk – straight on.",
        "parameters": {"type": "object", "properties": {"steps": {"type": "integer"}}, "required": ["steps"]},
    },
}


def conversation(*going: object) -> list[dict[str, Any]]:
    """One with every kind of message, in which `go` is called with these arguments, as they are sent."""
    calls = [{"type": "function", "function": {"name": "go", "arguments": each}} for each in going]
    return [
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
            "tool_calls": calls,
        },
        {"role": "tool", "content": "blocked"},
        {"role": "tool", "content": "a red ball"},
        {"role": "assistant", "content": "Found."},
    ]


class Template(NamedTuple):
    """A model's conversation, how its template writes it, and how a reply that may think begins."""

    conversation: list[dict[str, Any]]
    rendered: str
    opening: str


GOLDEN = Path(__file__).parents[2] / "golden" / "templates"

DENSE = Template(
    conversation({"steps": 2}, '{"steps": 1}'), (GOLDEN / "dense.txt").read_text(encoding="utf-8"), ""
)
HYBRID = Template(
    conversation({"steps": 2, "how": "slow\nly"}, {"path": [["é", 1.5], {"x": True}]}),
    (GOLDEN / "hybrid.txt").read_text(encoding="utf-8"),
    "<think>\n",
)


@pytest.fixture(scope="module", params=["tiny-random", "tiny-hybrid"])
def folder(request: pytest.FixtureRequest) -> Path:
    return Path(bundled_folder(request.param))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def template(folder: Path) -> Template:
    return HYBRID if folder.name == "tiny-hybrid" else DENSE


def test_generation_ends_at_the_end_of_a_turn(folder: Path, tokenizer: Any) -> None:
    end, pad = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert tokenizer.eos_token == "<|im_end|>"
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == end
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [end, pad]


def test_the_template_renders_a_whole_tool_conversation(tokenizer: Any, template: Template) -> None:
    text = tokenizer.apply_chat_template(template.conversation, tools=[LOOK, GO], tokenize=False)
    assert text == template.rendered


def test_the_generation_prompt_opens_the_reply(tokenizer: Any, template: Template) -> None:
    for thinking, opening in (
        ({}, template.opening),
        ({"enable_thinking": True}, template.opening),
        ({"enable_thinking": False}, "<think>\n\n</think>\n\n"),
    ):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": "Go."}], tokenize=False, add_generation_prompt=True, **thinking
        )
        assert text == "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n" + opening
