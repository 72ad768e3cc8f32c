"""Parse model-written source text. None of it is executed."""

from __future__ import annotations
import __future__

import ast
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType

from speedrunner.library.rules import DEPTH_LIMIT, MODULE_BYTES, SHOWN_CHARS, InvalidSkill

TOO_DEEP = f"the code is nested too deeply; {DEPTH_LIMIT} levels are allowed"


def check_size(source: str) -> None:
    """Raise `InvalidSkill` if a text is larger than a library may be."""
    if len(source) > MODULE_BYTES or len(source.encode(errors="replace")) > MODULE_BYTES:
        raise InvalidSkill(f"the module has more than {MODULE_BYTES} bytes, the limit")


def tidy_source(source: str) -> str:
    """Return a text with uniform line ends and without common indentation."""
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    found = re.match(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*([^\S\n]+)[^\s#]", text)
    return re.sub(f"(?m)^{re.escape(found[1])}", "", text) if found else text


def parse_source(source: str) -> ast.Module:
    """Parse a text of a library. Raises `InvalidSkill` if it is not valid Python, too large or too deep."""
    check_size(source)
    with _explain_syntax_errors():
        tree = ast.parse(source)
    waiting: list[tuple[ast.AST, int, int]] = [(tree, 1, 0)]
    while waiting:
        node, line, depth = waiting.pop()
        line = getattr(node, "lineno", line)
        if depth > DEPTH_LIMIT:
            raise InvalidSkill(f"line {line}: {TOO_DEEP}")
        depth += 1
        for value in vars(node).values():  # twice as fast as `ast.iter_child_nodes`
            if isinstance(value, ast.AST):
                waiting.append((value, line, depth))
            elif isinstance(value, list):
                waiting += [(each, line, depth) for each in value if isinstance(each, ast.AST)]
    return tree


def compile_source(source: str) -> CodeType:
    """Compile a text, which finds errors that the parser misses. Raises `InvalidSkill`."""
    check_size(source)
    with _explain_syntax_errors():
        flags = __future__.annotations.compiler_flag  # the library's module has it, too
        code: CodeType = compile(source, "<skill>", "exec", flags, dont_inherit=True)
    return code


def text_of(node: ast.stmt | ast.expr, lines: list[str]) -> str:
    """Return the text of a statement, with its decorators, or of an expression in these lines."""
    first = first_line(node)
    text = [line.encode() for line in lines[first - 1 : node.end_lineno]]  # columns count bytes
    text[-1] = text[-1][: node.end_col_offset]
    text[0] = text[0][node.col_offset :]
    return b"\n".join(text).decode()


def first_line(node: ast.stmt | ast.expr) -> int:
    """Return the first line of a statement, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(each.lineno for each in (node, *decorators))


@contextmanager
def _explain_syntax_errors() -> Iterator[None]:
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except SyntaxError as error:
        place = f"line {error.lineno}: " if error.lineno else ""
        line = (error.text or "").strip()
        text = f": {line[:SHOWN_CHARS]}{'...' * (len(line) > SHOWN_CHARS)}" if line else ""
        raise InvalidSkill(f"{place}{error.msg}{text}") from None
    except ValueError as error:  # lone surrogates, null bytes
        raise InvalidSkill(f"the source is not valid Python: {error}") from None
    except (RecursionError, MemoryError):
        raise InvalidSkill(TOO_DEEP) from None
