"""What a model reads with chat templates of ten kinds; tests/golden/chat_templates has the conversations."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from serving.errors import InvalidModelConfig
from serving.tokens import chat_template
from serving.tokens.chat_template import ChatTemplate
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import Transcript
from tests.golden_tables import Golden, error_message
from tests.transcript_samples import transcript_of

TEMPLATES = Path(__file__).parents[2] / "data" / "chat_templates"

TOKENS = (
    *("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>", "[INST]", "[/INST]"),
    *("<|sor|>", "<|eor|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
)

EOS = {
    "no_system": "<eos>",
    "strict_turns": "</s>",
    "tools_in_user": "<|eot_id|>",
    "python_calls": "<|eot_id|>",
    "other_roles": "<|endoftext|>",
    "channels": "<|end|>",
}
"""The token at which the engine ends an answer; otherwise <|im_end|>."""

FORMAT = {"tools_in_user": "llama3_json", "xml": "qwen3_xml"}
"""The tool format; otherwise qwen3_json."""

CALLS = {
    "qwen3_json": '<tool_call>\n{"name": "go", "arguments": {"steps": 2}}\n</tool_call>',
    "qwen3_xml": "<tool_call>\n<function=go>\n<parameter=steps>\n2\n</parameter>\n</function>\n</tool_call>",
    "llama3_json": '{"name": "go", "parameters": {"steps": 2}}',
}


def go(steps: int, way: Literal["left", "right"] = "left") -> None:
    """The signature of the tool."""


GO = ToolSpec.from_signature("go", inspect.signature(go, eval_str=True), "Walk some steps.")

Make = Callable[[str], ChatTokenizer]


@pytest.fixture(scope="module")
def make(tiny_folder: str, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return the tokenizer of the bundled models with another chat template."""
    from transformers import PreTrainedTokenizerFast

    def make(name: str) -> ChatTokenizer:
        folder = tmp_path_factory.mktemp(name)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(tiny_folder)
        tokenizer.add_special_tokens({"additional_special_tokens": list(TOKENS)})
        tokenizer.eos_token = EOS.get(name, "<|im_end|>")
        tokenizer.chat_template = (TEMPLATES / f"{name}.jinja").read_text().rstrip("\n")
        tokenizer.save_pretrained(folder)
        return ChatTokenizer(folder)

    return make


def converse(tokenizer: ChatTokenizer, name: str) -> Transcript:
    """Return a conversation: a reasoned call, its reply, an answer without a call, the reply to that."""
    said = [{"role": "system", "content": "You walk."}, {"role": "user", "content": "Find the door."}]
    form = FORMAT.get(name, "qwen3_json")
    fields = {"tool_format": form, "thinking": "none", "tools_in": "system"}
    transcript = transcript_of(tokenizer, said, [GO], thinking_tokens=16, string_tokens=8, **fields)
    end = tokenizer.control_id(tokenizer.template.eos)
    call = CALLS[form]
    for text in (f"I search.\n{call}", "I see."):
        read = transcript.answer([*tokenizer.framed(text), end])
        assert (read.call is not None) == (call in text), read.problem
        transcript.tell(f'A "{text[:1]}" door.')
    return transcript


@pytest.mark.parametrize("name", sorted(file.stem for file in TEMPLATES.glob("*.jinja")))
def test_a_model_reads_its_tools_the_form_of_a_call_and_each_reply(
    name: str, make: Make, golden: Golden
) -> None:
    tokenizer = make(name)
    text = converse(tokenizer, name).text
    note = tokenizer.template.note(tools_in_system=True)
    golden(f"chat_templates/{name}.txt", f"[{note}]\n{text}\n")


ENDLESS = {
    "loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "loops for one message": "{% for a in range(9999 if messages|length == 1 else 0) %}"
    "{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "output": "{% for a in range(9999) %}{{ 'x' * 10000 }}{% endfor %}",
    "memory": "{% set n = namespace(x='x') %}{% for a in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_without_end_is_refused_in_one_line(
    name: str, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "RENDER_S", 1.0)
    monkeypatch.setattr(chat_template, "RENDER_BYTES", 2**28)
    tokenizer = ChatTokenizer(tiny_folder)
    tokenizer.files.chat_template = ENDLESS[name] + "{{ messages[0].content }}"
    message = error_message(tokenizer.template.check_limits, InvalidModelConfig)
    assert "takes more than 1 s, 256 MiB of memory or 1,048,576 characters for " in message


def test_a_template_that_cannot_be_interrupted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> str:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.pause()
        return ""

    monkeypatch.setattr(chat_template, "RENDER_S", 0.1)
    with pytest.raises(InvalidModelConfig, match=r"takes more than 0\.1 s"):
        ChatTemplate(hang, ["<s>"], "<s>").check_limits()


def test_a_template_without_turns_is_refused(make: Make, golden: Golden) -> None:
    tokenizer = make("no_tools")
    tokenizer.files.chat_template = "{{ messages[0].content }}"
    message = error_message(lambda: tokenizer.template.frame(FORMATS["qwen3_json"]), InvalidModelConfig)
    golden("chat_templates/refused.txt", message + "\n")


def test_a_template_that_writes_tools_or_the_system_message_gets_the_system_message_elsewhere(
    make: Make,
) -> None:
    tokenizer = make("no_tools")
    either = "{% if tools %}{{ tools | tojson }}{% elif messages[0].role == 'system' %}SYSTEM{% endif %}"
    tokenizer.files.chat_template = either + "{{ messages[-1].content }}"
    assert (tokenizer.template.writes_tools, tokenizer.template.writes_system) == (True, False)
    said = [{"role": "system", "content": "You walk."}, {"role": "user", "content": "Go."}]
    assert tokenizer.template.first_messages(said, [], "") == [
        {"role": "user", "content": "You walk.\n\nGo."}
    ]
