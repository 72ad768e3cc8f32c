"""Tokenizers that need no code of `transformers`: its import takes a second, or three with torch."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from jinja2 import Template

SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
KEYS = {
    *("backend", "tokenizer_class", "model_max_length", *SPECIAL),
    *("clean_up_tokenization_spaces", "is_local", "local_files_only"),
}
"""Settings that a plain tokenizer may have; some have no effect."""

MODELS = (None, "qwen3", "qwen3_next")
"""Types of models for which `transformers` takes a `TokenizersBackend` as its files have it."""

OTHER_FILES = ("special_tokens_map.json", "added_tokens.json", "additional_chat_templates")
"""Files with which `transformers` changes a tokenizer."""

ONLY_TRANSFORMERS = ("endgeneration", "strftime_now")
"""Names in chat templates that only `transformers` defines."""


class PlainTokenizer:
    """A tokenizer that its files describe completely. Its attributes are those of `PreTrainedTokenizerFast`.

    Args:
        special: special tokens by name, which chat templates can read.
    """

    def __init__(self, backend: Any, chat_template: str, special: dict[str, str]) -> None:
        self.backend_tokenizer = backend
        self.chat_template = chat_template
        self.eos_token = special.get("eos_token")
        self._special = special

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read a folder; `None` if its tokenizer needs `transformers`. Raises any error of its files."""
        from tokenizers import Tokenizer

        files = (folder / name for name in ("tokenizer_config.json", "config.json", "chat_template.jinja"))
        settings, model, template = (file.read_text("utf-8") if file.is_file() else "" for file in files)
        config = json.loads(settings or "{}")
        is_plain = config.get("tokenizer_class") == "TokenizersBackend" and KEYS.issuperset(config)
        is_plain &= json.loads(model or "{}").get("model_type") in MODELS
        is_plain &= template != "" and not any(name in template for name in ONLY_TRANSFORMERS)
        if not is_plain or any((folder / name).exists() for name in OTHER_FILES):
            return None
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        known = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        special = {name: config[name] for name in SPECIAL if name in config}
        is_known = all(isinstance(text, str) and text in known for text in special.values())
        return cls(backend, template, special) if is_known else None

    def apply_chat_template(self, messages: Any, **variables: Any) -> str:
        """Return the text of messages, as `transformers` does. Raises the errors of the template."""
        template = _compile(self.chat_template)
        return template.render(messages=messages, documents=None, **self._special, **variables)


@lru_cache(maxsize=8)
def _compile(source: str) -> Template:
    from jinja2 import TemplateError  # heavy
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(reason: str) -> None:
        raise TemplateError(reason)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _write_json
    environment.globals["raise_exception"] = refuse
    return environment.from_string(source)


def _write_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
