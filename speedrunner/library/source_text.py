"""Source text by lines, as Python counts them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from contextlib import suppress

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


class SourceText:
    """A text from which pieces are taken."""

    def __init__(self, text: str) -> None:
        self._lines = _LINE.findall(text)

    def of(self, node: ast.stmt | ast.expr) -> str:
        """The text of a statement or an expression, a class's decorators included."""
        lines = [line.encode() for line in self._lines[node.lineno - 1 : node.end_lineno]]
        lines[-1] = lines[-1][: node.end_col_offset]  # columns count bytes
        lines[0] = lines[0][node.col_offset :]
        decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
        return "".join(f"@{self.of(each)}\n" for each in decorators) + b"".join(lines).decode()


def unindented(text: str) -> str:
    """Return a text that is indented as a whole without the indentation of its first statement."""
    found = re.match(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*([^\S\n]+)[^\s#]", text)
    return re.sub(f"(?m)^{re.escape(found[1])}", "", text) if found else text


def longest_statement(text: str) -> int:
    """The line in which the statement of the most tokens begins."""
    sizes: Counter[int] = Counter()
    first = 1
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE:
                first = token.end[0] + 1
            elif token.type not in (tokenize.NL, tokenize.COMMENT):
                first = first if sizes[first] else token.start[0]
                sizes[first] += 1
    return max(sizes, key=lambda line: sizes[line], default=1)
