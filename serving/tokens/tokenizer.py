"""Text to token ids and back, with a strict distinction between template text and outside text.

Control tokens (`<|im_end|>`, `<tool_call>`, ...) are encoded as such only where the chat template wrote them.
In observations, documentation and every other text from outside they are encoded as ordinary characters. So
no game text can forge a turn.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from serving.errors import InvalidModelConfig
from serving.tokens.chat_template import ChatTemplate
from serving.tokens.plain_tokenizer import PlainTokenizer
from serving.tokens.tools import ToolSpec


class ChatTokenizer:
    """A model's tokenizer and chat template. Raises `InvalidModelConfig` if the folder has no usable ones.

    Attributes:
        files: the tokenizer and the chat template as the folder has them.
        digest: SHA-256 of the tokenizer and its chat template.
        template: what the chat template writes.
    """

    def __init__(self, folder: str | Path) -> None:
        from tokenizers import Tokenizer

        self._folder = str(folder)
        try:
            self.files: Any = PlainTokenizer.read(Path(folder)) or self.huggingface
            self._backend = self.files.backend_tokenizer
            described = self._backend.to_str()
            backend = json.loads(described)
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidModelConfig(f"{folder} contains no usable tokenizer: {reason}") from error
        if not self.files.chat_template:
            raise InvalidModelConfig(f"{folder} has no chat template: add a chat_template.jinja")
        template = json.dumps(self.files.chat_template)  # some models have several templates, by name
        self.digest = hashlib.sha256(f"{template}\n{described}".encode()).hexdigest()
        added = backend.pop("added_tokens")
        self._control = {token["content"]: int(token["id"]) for token in added}
        longest_first = sorted(self._control, key=len, reverse=True)
        self.template = ChatTemplate(self._render, longest_first, str(self.files.eos_token))
        self.template.check_limits()
        self._control_pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        # While the template runs, a nonce that no text contains replaces control tokens from outside.
        self._mark = f"\ue000{secrets.token_hex(8)}"
        self._hidden = re.compile(f"{self._mark}([0-9]+)\ue001")
        # Without its added tokens, the same tokenizer encodes every text as ordinary text. That follows a
        # control token, so it never gets the space that some tokenizers put before a prompt's first text.
        bare = json.dumps({**backend, "added_tokens": []})
        plain = Tokenizer.from_str(bare.replace('"prepend_scheme": "first"', '"prepend_scheme": "never"'))
        self._frame = lru_cache(maxsize=64)(self._encode_frame)
        # Every first prompt repeats the system message.
        self._encode_plain = lru_cache(maxsize=256)(
            lambda text: plain.encode(text, add_special_tokens=False).ids
        )

    @cached_property
    def huggingface(self) -> Any:
        """The tokenizer object of `transformers`, which raises many kinds of errors. No code of the folder
        runs."""
        from transformers import AutoTokenizer  # takes seconds

        return AutoTokenizer.from_pretrained(self._folder, trust_remote_code=False)

    @cached_property
    def grammar_compiler(self) -> Any:
        """The compiler of the engine's own grammar library for this tokenizer."""
        import xgrammar  # heavy

        info = xgrammar.TokenizerInfo.from_huggingface(self.huggingface)
        return xgrammar.GrammarCompiler(info, max_threads=1)

    def first_prompt(
        self, messages: list[dict[str, str]], tools: list[ToolSpec], **template_options: Any
    ) -> tuple[list[int], str]:
        """Render a conversation's first prompt with the model's own template.

        The result equals the engine's own rendering, token by token, except where `messages` or `tools`
        contain the text of a control token.

        Args:
            template_options: variables of the template (`enable_thinking`).

        Returns:
            The prompt's token ids, and the generation prompt: the text that opens the model's turn, with the
            header that the template writes before each answer.
        """
        texts = list(self._control)

        def hide(value: Any) -> Any:
            match value:
                case str():
                    return self._control_pattern.sub(
                        lambda found: f"{self._mark}{texts.index(found.group())}\ue001", value
                    )
                case dict():
                    return {hide(key): hide(item) for key, item in value.items()}
                case list() | tuple():
                    return [hide(item) for item in value]
            return value

        hidden_messages, hidden_tools = hide(messages), hide([tool.openai for tool in tools])

        rendered = self._render(hidden_messages, hidden_tools, True, **template_options)
        closed = self._render(hidden_messages, hidden_tools, False, **template_options)
        if not rendered.startswith(closed):
            raise InvalidModelConfig("the chat template rewrites earlier text when it opens the model's turn")
        rendered += self.template.answer_header
        ids = self._encode(rendered, lambda text: self._hidden.sub(lambda found: texts[int(found[1])], text))
        return ids, rendered[len(closed) :]

    def _render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], open_turn: bool, **options: Any
    ) -> str:
        try:
            return str(
                self.files.apply_chat_template(
                    messages, tools=tools or None, tokenize=False, add_generation_prompt=open_turn, **options
                )
            )
        except Exception as error:  # templates raise errors of their own
            roles = ", ".join(message["role"] for message in messages)
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InvalidModelConfig(f"the chat template refuses messages ({roles}): {reason}") from error

    def outside_text(self, text: str) -> list[int]:
        """Encode text from outside: control tokens in it are ordinary characters."""
        # A skill may have created surrogates, which cannot be encoded.
        clean = text.encode("utf-8", "replace").decode()
        return list(self._encode_plain(clean))

    def framed(self, before: str, text: str = "", after: str = "") -> list[int]:
        """Encode outside text between two template texts, with merges across their borders as the model's
        tokenizer would make them."""
        opening, left, right, closing = self._frame(before, after)
        return [*opening, *self.outside_text(left + text + right), *closing]

    def _encode_frame(self, before: str, after: str) -> tuple[list[int], str, str, list[int]]:
        """Return the outer parts of a frame as ids, and the inner ones, up to a control token, as texts."""
        left, right = self._control_pattern.split(before)[-1], self._control_pattern.split(after)[0]
        opening, closing = self._encode(before.removesuffix(left)), self._encode(after.removeprefix(right))
        return opening, left, right, closing

    def control_id(self, text: str) -> int:
        """Return the id of one control token. Raises `InvalidModelConfig` if the tokenizer lacks it."""
        if text not in self._control:
            raise InvalidModelConfig(
                f"the tokenizer has no token {text!r}, which the model config's tool format needs"
            )
        return self._control[text]

    def control_ids(self, texts: Iterable[str]) -> set[int]:
        """Return the ids of those control tokens that the tokenizer has."""
        return {self._control[text] for text in texts if text in self._control}

    def decode(self, ids: list[int]) -> str:
        """Return the text of generated ids, including control tokens; invalid UTF-8 becomes U+FFFD."""
        # The wrapper's own `decode` looks at each id, which takes longer than the decoding.
        return str(self._backend.decode(ids, skip_special_tokens=False))

    def _encode(self, text: str, restore: Callable[[str], str] = str) -> list[int]:
        ids: list[int] = []
        for part in self._control_pattern.split(text):  # control tokens, and the texts between them
            ids += [self._control[part]] if part in self._control else self.outside_text(restore(part))
        return ids
