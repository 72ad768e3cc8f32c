"""Tokenizers that are read without `transformers`; test_tokenizer.py compares their prompts with its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serving.errors import InvalidModelConfig
from serving.tokens.plain_tokenizer import PlainTokenizer
from serving.tokens.tokenizer import ChatTokenizer

HEADER = "<|im_start|>"


@pytest.fixture
def folder(tiny_folder: str, tmp_path: Path) -> Path:
    """A copy of a bundled tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        shutil.copy(Path(tiny_folder, name), tmp_path)
    return tmp_path


@pytest.mark.process
def test_a_bundled_tokenizer_imports_no_transformers(folder: Path) -> None:
    program = f"""
import sys
from serving.tokens.tokenizer import ChatTokenizer
ids, opening = ChatTokenizer({str(folder)!r}).first_prompt([dict(role="user", content="Go.")], [])
print(len(ids) > 5, opening.startswith({HEADER!r}), "transformers" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("True True False\n", "")


@pytest.mark.parametrize("more", [{}, {"bos_token": "<|im_start|>", "unk_token": "<|endoftext|>"}])
def test_its_tokens_and_names_are_those_of_transformers(folder: Path, more: dict[str, str]) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | more))
    tokenizer = ChatTokenizer(folder)
    plain, whole = tokenizer.files, tokenizer.huggingface
    assert isinstance(plain, PlainTokenizer)
    assert plain.backend_tokenizer.to_str() == whole.backend_tokenizer.to_str()
    assert (plain.eos_token, plain.chat_template) == (whole.eos_token, whole.chat_template)


CONFIG = "tokenizer_config.json"
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "another class": (CONFIG, {"tokenizer_class": "Qwen2Tokenizer"}),
    "a setting that may change tokens": (CONFIG, {"add_bos_token": True}),
    "a special token with options": (CONFIG, {"eos_token": {"content": "<|endoftext|>", "special": True}}),
    "a special token that is none": (CONFIG, {"pad_token": None}),
    "a special token that is new": (CONFIG, {"eos_token": "<|stop|>"}),
    "another model": ("config.json", {"model_type": "gemma"}),
    "tokens in another file": ("added_tokens.json", {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_tokenizer_that_its_files_do_not_describe_is_left_to_transformers(folder: Path, name: str) -> None:
    file, changes = OTHERS[name]
    given = (folder / file).read_text() if (folder / file).exists() else "{}"
    (folder / file).write_text(json.dumps(json.loads(given) | changes))
    assert PlainTokenizer.read(folder) is None


@pytest.mark.parametrize(
    "text",
    [
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
        '{{ {"a": "<é>", "b": [1, none]} | tojson }}{{ messages | tojson(true, indent=2) }}',
        "{{ messages[0].content }}{{ eos_token }}{{ bos_token }}{{ documents }}\n{{ tools }}\n",
        "    {% if add_generation_prompt %}\n open\n{% endif %}\n",
    ],
)
def test_a_template_gives_the_text_that_it_gives_with_transformers(folder: Path, text: str) -> None:
    (folder / "chat_template.jinja").write_text(f"{text}{HEADER}")
    tokenizer = ChatTokenizer(folder)
    assert isinstance(tokenizer.files, PlainTokenizer)
    said = [{"role": "user", "content": "<b>é"}, {"role": "assistant", "content": "B"}]
    for is_open in (False, True):
        options: dict[str, Any] = {"tools": [{"n": "ü"}], "add_generation_prompt": is_open, "tokenize": False}
        wanted = tokenizer.huggingface.apply_chat_template(said, **options)
        assert tokenizer.files.apply_chat_template(said, **options) == wanted


def test_a_template_with_names_of_transformers_is_left_to_it(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(
        "{% generation %}x{% endgeneration %}{{ strftime_now('%%') }}"
    )
    tokenizer = ChatTokenizer(folder)
    assert tokenizer.files is tokenizer.huggingface
    assert tokenizer.template.render([{"role": "user", "content": "A"}], [], False) == "x%"


def test_a_template_that_refuses_messages_says_why(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no such role') }}")
    with pytest.raises(InvalidModelConfig, match=r"refuses messages \(user\): no such role$"):
        ChatTokenizer(folder).template.render([{"role": "user", "content": "A"}], [], False)
