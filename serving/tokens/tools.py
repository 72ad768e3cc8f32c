"""Tools as a model sees them: a name, a JSON schema, documentation.

`ToolSpec` is the only place that knows which argument types exist: `str`, `int`, `float`, `bool`,
`Literal`, `list`, `TypedDict`; a parameter with a default may be left out. Decoding, parsing, the chat
route and the skill library all go by its schema.
"""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any, Literal, NotRequired, Required, get_args, get_origin

import msgspec

from serving.errors import InvalidTool

Schema = dict[str, Any]

ALLOWED_TYPES = "str, int, float, bool, Literal, list and TypedDict"
NESTING_LIMIT = 4
"""Levels of lists and TypedDicts, one within another: each more doubles the grammar of a call."""

TYPES_LIMIT = 50
"""Types in the parameters of one tool; those of items and fields count wherever they occur."""

_SCALARS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
_UNDERSTOOD = {
    *("type", "title", "description", "default", "enum", "const"),
    *("items", "properties", "required", "additionalProperties"),
}


class ToolSpec(msgspec.Struct, frozen=True):
    """One tool.

    Attributes:
        name: what the model calls.
        doc: what it is told about it.
        parameters: JSON schema of the arguments: an object whose properties stand in the order in
            which they are written, without references, titles or unions.
    """

    name: str
    doc: str
    parameters: Schema

    @classmethod
    def from_signature(cls, name: str, signature: inspect.Signature, doc: str) -> ToolSpec:
        """Turn a typed signature into a tool.

        Raises:
            InvalidTool: a parameter has no annotation, or one that tool calls do not support, or cannot be
                given by name.
        """
        for parameter in signature.parameters.values():
            by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if not by_name or parameter.name.startswith("_"):
                raise InvalidTool(
                    f"{name}: parameter '{parameter}' cannot be given by name; use plain parameters"
                    " (no *, ** or /) whose names do not begin with an underscore"
                )
        # Pydantic, which is slow to import, comes with it.
        from outlines.types.utils import get_schema_from_signature

        def stub() -> None: ...

        stub.__name__ = name
        stub.__signature__ = signature  # type: ignore[attr-defined]
        try:
            with warnings.catch_warnings():
                # Of names that pydantic uses itself, and of defaults that JSON cannot express.
                warnings.simplefilter("ignore")
                raw = get_schema_from_signature(stub)
        except Exception as error:
            raise InvalidTool(
                f"{name}: its signature {signature} cannot be turned into a tool"
                f" ({_first_line(error)}); annotate each parameter with {ALLOWED_TYPES}"
            ) from error
        _check_types(name, signature)
        definitions = raw.pop("$defs", {})
        parameters = _simplify(raw, definitions, name, ())
        parameters.pop("description", None)
        return cls(name=name, doc=doc, parameters=parameters)

    @property
    def openai(self) -> dict[str, Any]:
        """The tool in the form that chat templates and chat completions take."""
        function = {"name": self.name, "description": self.doc, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def problem_with(self, arguments: object) -> str | None:
        """Why `arguments` do not satisfy the schema, or `None` when they do."""
        return _mismatch(arguments, self.parameters, "")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _check_types(name: str, signature: inspect.Signature) -> None:
    """Refuse what would have the same schema as something else (tuples and lists, other classes and
    TypedDicts), and what would make a grammar too large. Raises `InvalidTool`."""
    from typing_extensions import get_type_hints, is_typeddict

    left = TYPES_LIMIT

    def check(annotation: Any, where: str, depth: int, within: tuple[Any, ...]) -> None:
        nonlocal left
        if get_origin(annotation) in (Required, NotRequired):
            (annotation,) = get_args(annotation)
        left -= 1
        if depth > NESTING_LIMIT:
            raise InvalidTool(f"{where}: its type is nested more than {NESTING_LIMIT} levels deep")
        if left < 0:
            raise InvalidTool(f"{name}: its parameters hold more than {TYPES_LIMIT} types")
        if get_origin(annotation) is list:
            check(get_args(annotation)[0], where, depth + 1, within)
        elif is_typeddict(annotation):
            if annotation not in within:  # else it is told with its name
                for each in get_type_hints(annotation, include_extras=True).values():
                    check(each, where, depth + 1, (*within, annotation))
        elif annotation not in (str, int, float, bool) and get_origin(annotation) is not Literal:
            raise _refused(where)

    for parameter in signature.parameters.values():
        check(parameter.annotation, f"{name}.{parameter.name}", 0, ())


def _refused(where: str) -> InvalidTool:
    return InvalidTool(f"{where}: its type is not supported; allowed are {ALLOWED_TYPES}")


def _simplify(schema: Schema, definitions: dict[str, Schema], where: str, within: tuple[str, ...]) -> Schema:
    """Keep what decoding understands of a pydantic schema; refuse everything else.

    Args:
        within: the definitions that this one is a part of.
    """
    refused = _refused(where)
    if "$ref" in schema:
        target = schema["$ref"].rsplit("/", 1)[-1]
        if target in within:
            raise InvalidTool(f"{where}: {target} holds itself; allowed are types of bounded depth")
        definition = definitions[target]
        if definition.get("type") != "object":  # an Enum class, whose members JSON cannot express
            raise refused
        outer = {key: value for key, value in schema.items() if key != "$ref"}
        return _simplify({**definition, **outer}, definitions, where, (*within, target))
    if not schema.keys() <= _UNDERSTOOD:
        raise refused
    kept: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    if isinstance(kept.get("default"), float) and not math.isfinite(kept["default"]):
        del kept["default"]  # no JSON
    if "const" in schema or "enum" in schema:
        options = schema.get("enum", [schema.get("const")])
        if not all(isinstance(option, (str, int)) for option in options):
            raise refused
        return {"enum": options, **kept}
    match schema.get("type"):
        case "string" | "integer" | "number" | "boolean" as scalar:
            return {"type": scalar, **kept}
        case "array" if "items" in schema:
            return {"type": "array", "items": _simplify(schema["items"], definitions, where, within), **kept}
        case "object" if schema.get("additionalProperties", False) is False:
            properties = {
                key: _simplify(value, definitions, f"{where}.{key}", within)
                for key, value in schema.get("properties", {}).items()
            }
            required = schema.get("required", [])
            return {
                "type": "object",
                "properties": properties,
                "required": [key for key in properties if key in required],
                "additionalProperties": False,
                **kept,
            }
    raise refused


def _mismatch(value: object, schema: Schema, path: str) -> str | None:
    at = f" at {path}" if path else ""
    if "enum" in schema:
        # 1 == True in Python, not in JSON.
        if any(value == option and type(value) is type(option) for option in schema["enum"]):
            return None
        return f"{value!r}{at} is not one of {', '.join(map(repr, schema['enum']))}"
    kind = schema["type"]
    if kind in _SCALARS:
        if isinstance(value, _SCALARS[kind]) and isinstance(value, bool) == (kind == "boolean"):
            return None
        return f"{value!r}{at} is not of type {kind}"
    if kind == "array":
        if not isinstance(value, list):
            return f"{value!r}{at} is not a list"
        found = (_mismatch(item, schema["items"], f"{path}[{n}]") for n, item in enumerate(value))
        return next((problem for problem in found if problem), None)
    if not isinstance(value, dict):
        return f"{value!r}{at} is not an object"
    properties = schema["properties"]
    if unknown := [key for key in value if key not in properties]:
        allowed = ", ".join(properties) or "none"
        return f"unknown argument {unknown[0]!r}{at}; allowed: {allowed}"
    if missing := [key for key in schema["required"] if key not in value]:
        return f"argument {missing[0]!r} is missing{at}"
    found = (
        _mismatch(item, properties[key], f"{path}.{key}" if path else key) for key, item in value.items()
    )
    return next((problem for problem in found if problem), None)
