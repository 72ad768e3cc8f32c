"""Types of a skill's parameters, read from annotations without running anything."""

from __future__ import annotations

import ast
import operator
import types
import typing
from collections.abc import Mapping
from typing import Any

from serving.tokens.tools import NESTING_LIMIT, TYPES_LIMIT

SUPPORTED = "str, int, float, bool, Literal[...], list[...] and TypedDict classes"
"""What a parameter may be; `serving.tokens.tools` makes a JSON schema of each."""

_SCALARS: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


class UnsupportedType(Exception):
    """An annotation is none that a tool's parameter can have. The text says why, if there is more to say."""


class Types:
    """The types that annotations may name.

    Args:
        classes: the module's classes by name; those derived from TypedDict can be parameters.
    """

    def __init__(self, classes: Mapping[str, ast.ClassDef]) -> None:
        self._classes = classes
        self._left = TYPES_LIMIT

    def of(self, annotation: ast.expr) -> Any:
        """Return the type that an annotation stands for. Raises `UnsupportedType`."""
        self._left = TYPES_LIMIT
        return self._type(annotation, (), 0)

    def _type(self, annotation: ast.expr, within: tuple[str, ...], depth: int) -> Any:
        """Read an annotation inside these classes, in so many lists and classes."""
        if depth > NESTING_LIMIT:
            raise UnsupportedType(f"it is nested more than {NESTING_LIMIT} levels deep")
        self._count()
        match annotation:
            case ast.Name(id=name) if name in _SCALARS:
                return _SCALARS[name]
            case ast.Name(id=name) if name in self._classes:
                return self._typed_dict(name, within, depth)
            case ast.Subscript(value=ast.Name(id="list"), slice=item):
                return types.GenericAlias(list, (self._type(item, within, depth + 1),))
            case ast.Subscript(value=kind, slice=values) if is_from("typing", "Literal", kind):
                options = values.elts if isinstance(values, ast.Tuple) else [values]
                if options and all(is_literal(each) for each in options):
                    choices = tuple(ast.literal_eval(each) for each in options)
                    if all(map(_is_choice, choices)):
                        return operator.getitem(typing.cast(Any, typing.Literal), choices)
        raise UnsupportedType

    def _count(self) -> None:
        """Count a type, before their number is too large to be read."""
        self._left -= 1
        if self._left < 0:
            raise UnsupportedType(f"it holds more than {TYPES_LIMIT} types")

    def _typed_dict(self, name: str, within: tuple[str, ...], depth: int) -> Any:
        from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

        if name in within:
            raise UnsupportedType(f"{name} holds itself")
        fields = self._fields(self._classes[name], (*within, name), depth + 1)
        made: Any = TypedDict(name, fields)  # type: ignore[misc]
        made.__doc__ = ast.get_docstring(self._classes[name])
        return made

    def _fields(self, node: ast.ClassDef, within: tuple[str, ...], depth: int) -> dict[str, Any]:
        from typing import NotRequired

        self._count()
        fields: dict[str, Any] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self._classes and base.id not in within:
                fields |= self._fields(self._classes[base.id], (*within, base.id), depth)
            elif not is_from("typing", "TypedDict", base):
                raise UnsupportedType(f"{node.name} is no TypedDict")
        if not node.bases:
            raise UnsupportedType(f"{node.name} is no TypedDict")
        total = next((each.value for each in node.keywords if each.arg == "total"), ast.Constant(True))
        required = not isinstance(total, ast.Constant) or bool(total.value)
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=field), annotation=annotation):
                    needed = required
                    match annotation:
                        case ast.Subscript(value=kind, slice=item) if is_from("typing", "NotRequired", kind):
                            annotation, needed = item, False
                        case ast.Subscript(value=kind, slice=item) if is_from("typing", "Required", kind):
                            annotation, needed = item, True
                    found = self._type(annotation, within, depth)
                    fields[field] = found if needed else NotRequired[found]
        return fields


def is_from(module: str, name: str, node: ast.expr) -> bool:
    """Tell whether an expression is a module's name, written with the module or without."""
    match node:
        case ast.Name(id=found):
            return found == name
        case ast.Attribute(value=ast.Name(id=owner), attr=found):
            return (owner, found) == (module, name)
    return False


def _is_choice(value: object) -> bool:
    """Tell whether a value can be an option in JSON, which readers agree on up to 64 bits."""
    return isinstance(value, str) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def is_literal(node: ast.expr | None) -> bool:
    """Tell whether an expression is a constant that can be written out as text."""
    if node is None:
        return False
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return False
    return all(
        is_text(each.value)
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )


def is_text(value: str) -> bool:
    """Tell whether the text can be written out: lone surrogates cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
