"""JSON values in a call: exactly what a Qwen chat template's `tojson` writes for them."""

from __future__ import annotations

import json
from typing import Any

from serving.tokens.grammar import Part, constant, grammar, one_of, optional, regex, repeated, sequence
from serving.tokens.tools import Schema

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
