"""Which names definitions take from the module around them, and which they bind: pyflakes' scopes."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from pyflakes import checker, messages  # type: ignore[import-untyped]


class Names(NamedTuple):
    """The names in one or more definitions.

    Attributes:
        reads: those that are taken from the module, their own and builtins included, each with its line and
            its column in bytes; also those that a function assigns further below.
        binds: those that functions bind inside themselves, each with its first line. Fields and methods of a
            class are none: they hide nothing from its methods.
        mentions: the reads' names, and those in annotations, which need not exist.
    """

    reads: list[tuple[str, int, int]]
    binds: dict[str, int]
    mentions: set[str]


class _Walk(checker.Checker):  # type: ignore[misc]
    """Takes nothing at the top level for known: what is undefined then is the module's."""

    # What else pyflakes looks for is of no concern here, and can take the square of the code's length; and
    # where NameError is caught, it would take names on trust.
    BINOP = CALL = COMPARE = DICT = IF = IFEXP = JOINEDSTR = LIST = checker.Checker.handleChildren
    RAISE = RETURN = SUBSCRIPT = TRY = TRYSTAR = TUPLE = checker.Checker.handleChildren
    BREAK = CONTINUE = GLOBAL = NONLOCAL = checker.Checker.ignore

    def __init__(self, tree: ast.Module) -> None:
        self.names = Names([], {}, set())
        super().__init__(tree, withDoctest=False)

    def report(self, messageClass: Any, *args: Any, **kwargs: Any) -> None:
        """Note a name that is not known."""
        if messageClass is messages.UndefinedName:
            node, name = args
            self.names.reads.append((name, node.lineno, node.col_offset))
            self.names.mentions.add(name)

    def addBinding(self, node: Any, value: Any) -> None:
        """Note a name that is bound, unless it is a builtin's or a definition's own."""
        scopes = self.scopeStack
        if isinstance(value, checker.NamedExprAssignment):
            scopes = [each for each in scopes if not isinstance(each, checker.ComprehensionScope)]
        if isinstance(scopes[-1], checker.ModuleScope):
            return
        scopes[-1][value.name] = value
        if not isinstance(scopes[-1], checker.ClassScope):
            binds = self.names.binds
            binds[value.name] = min(node.lineno, binds.get(value.name, node.lineno))

    def handleAnnotation(self, annotation: Any, node: Any) -> None:
        """Note the names in an annotation, which is never evaluated."""
        if annotation is not None:
            self.names.mentions.update(each.id for each in ast.walk(annotation) if isinstance(each, ast.Name))


def names_in(tree: ast.Module) -> Names:
    """Find the names in definitions."""
    return _Walk(tree).names
