"""Building blocks of structural tags: which output they allow, and how many tokens it takes at most.

JSON values are exactly what a Qwen chat template's `tojson` writes for them.

The engine enforces structural tags with xgrammar. Every region is bounded, so a request with `max_tokens` of
at least `Part.tokens` cannot be truncated in the middle of a call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from serving.tokens.tools import Schema


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


LIST_ITEMS = 32
"""Maximum length of a list in a call, unless its schema has another (`maxItems`)."""

# Strings are bounded by tokens, not by characters: a count of characters makes the engine's token masks slow
# (seconds a token at a thousand characters and a large vocabulary). So does one repetition over both plain
# characters and escapes (35 ms a token); a starred character class has a fast path. Surrogates are excluded,
# since they are not valid UTF-8.
_STRING = r"""
root ::= "\"" body "\""
body[max_tokens=%d] ::= [ !#-\[\]-\uD7FF\uE000-\U0010FFFF]* ("\\" escape [ !#-\[\]-\uD7FF\uE000-\U0010FFFF]*)*
escape ::= ["\\bfnrt] | "u00" ("0" [0-7bef] | "1" [0-9a-f])
"""
_ESCAPE_REST = 5  # an escape or character that starts within the bound may end beyond it
_INTEGER = r"(0|-?[1-9][0-9]{0,14})"
# Room for every float from 1e-99 to 1e99 as Python writes it.
_NUMBER = r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,2})?"


def dumps(value: Any) -> str:
    """Return a value as the template writes it."""
    return json.dumps(value, ensure_ascii=False)


def json_value(schema: Schema, string_tokens: int) -> Part:
    """Return the grammar of a value that satisfies `schema`, with each string bounded to `string_tokens`."""
    if "enum" in schema:
        return one_of(*(constant(dumps(option)) for option in schema["enum"]))
    match schema["type"]:
        case "string":
            return grammar(_STRING % string_tokens, string_tokens + _ESCAPE_REST + 2)
        case "integer":
            return regex(_INTEGER, 16)
        case "number":
            return regex(_NUMBER, 42)
        case "boolean":
            return one_of(constant("true"), constant("false"))
        case "array":
            item = json_value(schema["items"], string_tokens)
            most = schema.get("maxItems", LIST_ITEMS)
            items = sequence(item, repeated(sequence(constant(", "), item), most - 1))
            return sequence(constant("["), optional(items), constant("]"))
        case _:
            return _object(schema, string_tokens)


def _object(schema: Schema, string_tokens: int) -> Part:
    """Return the grammar of an object with its properties in the schema's order, the optional ones present or
    not."""
    required = schema["required"]
    members = {
        key: sequence(constant(f"{dumps(key)}: "), json_value(value, string_tokens))
        for key, value in schema["properties"].items()
    }
    if not members:
        return constant("{}")
    others = [sequence(constant(", "), member) for member in members.values()]
    after = [
        other if key in required else optional(other) for key, other in zip(members, others, strict=True)
    ]
    # The first member present has no comma before it. The optional members decide which one is first.
    bodies: list[Part] = []
    for number, (key, member) in enumerate(members.items(), start=1):
        bodies.append(sequence(member, *after[number:]))
        if key in required:
            return sequence(constant("{"), one_of(*bodies), constant("}"))
    return sequence(constant("{"), optional(one_of(*bodies)), constant("}"))


def structural_tag(part: Part) -> str:
    """Return the JSON text that a request carries as `structured_outputs.structural_tag`."""
    return json.dumps({"type": "structural_tag", "format": part.format}, ensure_ascii=False)
