"""Tools as a model sees them: a name, a JSON schema, documentation.

`ToolSpec.from_signature` defines the argument types: `str`, `int`, `float`, `bool`, `Literal`, `list`,
`TypedDict`. A parameter with a default is optional. Decoding, parsing and the chat API use the
schema that it creates. The skill library uses it to accept or reject signatures.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, Literal, NotRequired, Required, get_args, get_origin

import msgspec

from serving.errors import InvalidCall, InvalidTool

Schema = dict[str, Any]

ALLOWED_TYPES = "str, int, float, bool, Literal, list and TypedDict"
NESTING_LIMIT = 4
"""Maximum nesting of lists and TypedDicts: each further level doubles the grammar of a call."""

TYPES_LIMIT = 50
"""Maximum number of types in the parameters of one tool; types of items and fields count at each
occurrence."""

_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_ACCEPTED: dict[str, type | tuple[type, ...]] = {
    **{name: kind for kind, name in _SCALARS.items()},
    "number": (int, float),
}


class ToolSpec(msgspec.Struct, frozen=True):
    """One tool.

    Attributes:
        name: name in the model's calls.
        doc: documentation for the model.
        parameters: JSON schema of the arguments: an object with its properties in the order in which calls
            write them, without references, titles or unions.
        strict: asks vLLM's built-in tool calls to follow the schema, which they otherwise do not.
    """

    name: str
    doc: str
    parameters: Schema
    strict: bool = False

    @classmethod
    def from_signature(cls, name: str, signature: inspect.Signature, doc: str) -> ToolSpec:
        """Turn a typed signature into a tool.

        Raises:
            InvalidTool: a parameter has no annotation, or one that tool calls do not support, or cannot be
                passed by name.
        """
        schemas = _Schemas(name)
        properties, required = {}, []
        for parameter in signature.parameters.values():
            by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if not by_name or parameter.name.startswith("_"):
                raise InvalidTool(
                    f"{name}: parameter '{parameter}' cannot be given by name; use plain parameters"
                    " (no *, ** or /) whose names do not begin with an underscore"
                )
            where = f"{name}.{parameter.name}"
            properties[parameter.name] = schemas.of(parameter.annotation, where) | _default(parameter)
            if parameter.default is parameter.empty:
                required.append(parameter.name)
        return cls(name, doc, _object(properties, required))

    @property
    def openai(self) -> dict[str, Any]:
        """The tool in the form of chat templates and chat completions."""
        function = {"name": self.name, "description": self.doc, "parameters": self.parameters}
        return {"type": "function", "function": function | ({"strict": True} if self.strict else {})}

    def problem_with(self, arguments: object) -> str | None:
        """Return why `arguments` do not satisfy the schema; `None` if they do."""
        return _mismatch(arguments, self.parameters, "")


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One complete call; its arguments satisfy its tool's schema.

    Attributes:
        cut: string arguments that ended because they reached the bound of a string's tokens.
    """

    name: str
    arguments: dict[str, Any]
    cut: tuple[str, ...] = ()


def checked_call(found: ToolCall, tools: dict[str, ToolSpec], text: str) -> ToolCall:
    """Return `found` if it names one of `tools` and satisfies its schema. Otherwise raises `InvalidCall` with
    the `text`."""
    if found.name not in tools:
        raise InvalidCall(f"there is no tool {found.name!r}; available: {', '.join(tools)}", text)
    if problem := tools[found.name].problem_with(found.arguments):
        raise InvalidCall(f"{found.name}: {problem}", text)
    return found


class _Schemas:
    """Schemas of annotations. They allow exactly what the annotations allow, and are bounded.

    Args:
        tool: the tool with these parameters; they share one limit on types.
    """

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._left = TYPES_LIMIT

    def of(self, annotation: Any, where: str, within: tuple[Any, ...] = ()) -> Schema:
        """Return the schema of an annotation inside these lists and TypedDicts. Raises `InvalidTool`."""
        from typing_extensions import is_typeddict

        self._left -= 1
        if len(within) > NESTING_LIMIT:
            raise InvalidTool(f"{where}: its type is nested more than {NESTING_LIMIT} levels deep")
        if self._left < 0:
            raise InvalidTool(f"{self._tool}: its parameters hold more than {TYPES_LIMIT} types")
        kind, arguments = get_origin(annotation), get_args(annotation)
        if kind is list:
            return {"type": "array", "items": self.of(arguments[0], where, (*within, list))}
        if kind is Literal and all(map(_is_option, arguments)):
            return {"enum": list(arguments)}
        if is_typeddict(annotation):
            if annotation in within:
                name = annotation.__name__
                raise InvalidTool(f"{where}: {name} contains itself; only types of bounded depth are allowed")
            return self._typed_dict(annotation, where, (*within, annotation))
        if isinstance(annotation, type) and annotation in _SCALARS:
            return {"type": _SCALARS[annotation]}
        has = "has no type" if annotation is inspect.Parameter.empty else "is of a type that is not supported"
        raise InvalidTool(f"{where}: it {has}; allowed are {ALLOWED_TYPES}")

    def _typed_dict(self, kind: Any, where: str, within: tuple[Any, ...]) -> Schema:
        from typing_extensions import get_type_hints

        try:
            hints = get_type_hints(kind, include_extras=True)
        except Exception as error:  # evaluating text annotations can raise anything
            raise InvalidTool(f"{where}: the types of {kind.__name__} cannot be read: {error}") from error
        properties, required = {}, []
        for name, annotation in hints.items():
            origin: Any = get_origin(annotation)
            if origin in (Required, NotRequired):
                (annotation,) = get_args(annotation)
            # If annotations are texts, as after a __future__ import, the class knows only its totality.
            if origin is Required or (name in kind.__required_keys__ and origin is not NotRequired):
                required.append(name)
            properties[name] = self.of(annotation, f"{where}.{name}", within)
        doc = inspect.getdoc(kind) if kind.__doc__ else None
        return _object(properties, required) | ({"description": doc} if doc else {})


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _is_option(value: object) -> bool:
    """Return whether JSON can express a `Literal`'s value; its readers agree on integers of up to 64 bits."""
    return isinstance(value, str) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _default(parameter: inspect.Parameter) -> Schema:
    """Return the schema's entry for a parameter's default; empty if there is none that JSON can express."""
    if parameter.default is parameter.empty:
        return {}
    try:
        return {"default": json.loads(json.dumps(parameter.default, allow_nan=False))}
    except (TypeError, ValueError, RecursionError):
        return {}


def _mismatch(value: object, schema: Schema, path: str) -> str | None:
    at = f" at {path}" if path else ""
    if "enum" in schema:
        # In Python, 1 == True; in JSON it is not.
        if any(value == option and type(value) is type(option) for option in schema["enum"]):
            return None
        return f"{value!r}{at} is not one of {', '.join(map(repr, schema['enum']))}"
    kind = schema["type"]
    if kind in _ACCEPTED:
        if isinstance(value, _ACCEPTED[kind]) and isinstance(value, bool) == (kind == "boolean"):
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
