"""Building blocks of structural tags: which output they allow, and how many tokens it takes at most.

The engine enforces structural tags with xgrammar. Every region is bounded, so a request with `max_tokens` of
at least `Part.tokens` cannot be truncated in the middle of a call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of output.

    Attributes:
        format: the structural-tag node that describes it.
        tokens: the most tokens that it takes, whatever the tokenizer.
    """

    format: dict[str, Any]
    tokens: int


def constant(text: str) -> Part:
    """Return a part that is exactly `text`. A token has at least one byte."""
    return Part({"type": "const_string", "value": text}, len(text.encode()))


def regex(pattern: str, length: int) -> Part:
    """Return a part that matches `pattern`, which must never match more than `length` ASCII characters."""
    return Part({"type": "regex", "pattern": pattern}, length)


def grammar(ebnf: str, tokens: int) -> Part:
    """Return a part in xgrammar's EBNF, at most `tokens` long."""
    return Part({"type": "grammar", "grammar": ebnf}, tokens)


def free_text(max_tokens: int, excludes: tuple[str, ...]) -> Part:
    """Return a part for any text of at most `max_tokens` without the texts `excludes`."""
    return Part({"type": "any_text", "excludes": list(excludes), "max_tokens": max_tokens}, max_tokens)


def sequence(*parts: Part) -> Part:
    """Return a part that is these parts one after another."""
    if len(parts) == 1:
        return parts[0]
    return Part(
        {"type": "sequence", "elements": [part.format for part in parts]}, sum(part.tokens for part in parts)
    )


def one_of(*parts: Part) -> Part:
    """Return a part that is exactly one of `parts`."""
    if len(parts) == 1:
        return parts[0]
    return Part(
        {"type": "or", "elements": [part.format for part in parts]}, max(part.tokens for part in parts)
    )


def optional(part: Part) -> Part:
    """Return a part that is `part` or nothing."""
    return Part({"type": "optional", "content": part.format}, part.tokens)


def repeated(part: Part, most: int) -> Part:
    """Return a part that is `part`, from zero to `most` times."""
    return Part({"type": "repeat", "min": 0, "max": most, "content": part.format}, part.tokens * most)


def thinking(max_tokens: int, begin: str, end: str, excludes: tuple[str, ...], closing: str = "") -> Part:
    """Return a thinking region: `begin`, at most `max_tokens` of text without `excludes`, `end`.

    Args:
        closing: text that must precede `end` if the text takes all of its tokens; empty for none.
    """

    def region(tokens: int, end: str) -> Part:
        inside = free_text(tokens, excludes)
        tag = {"type": "tag", "begin": begin, "content": inside.format, "end": end}
        return Part(tag, tokens + len(begin.encode()) + len(end.encode()))

    if not closing:
        return region(max_tokens, end)
    # A text that ends by itself has one token less, so after `max_tokens` only the second form is possible.
    return one_of(region(max_tokens - 1, end), region(max_tokens, closing + end))


def structural_tag(part: Part) -> str:
    """Return the JSON text that a request carries as `structured_outputs.structural_tag`."""
    return json.dumps({"type": "structural_tag", "format": part.format}, ensure_ascii=False)
