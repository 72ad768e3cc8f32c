"""How many small mistakes the tests of a package notice: `python -m tests.mutants speedrunner/results`.

Each mutant is one changed syntax node of one module: another comparison or operator, a constant that is off
by one, swapped arguments, a negated condition, a removed statement, a missing result. It is killed if a test
of the package without processes fails. What survives is printed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from serving.model_configs import CHECKOUT
from tests.processes import HANGS_S

OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or,
    ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip

NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "mean", "mean": "sum"}

NOT_COPIED = (".venv", ".git", ".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", "runs", "build")


class Mutant(NamedTuple):
    """A module with one changed node: its path in the checkout, the line, and both texts of the node."""

    path: Path
    line: int
    before: str
    after: str
    source: str


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what takes the place of a node."""
    match node:
        case ast.Compare(ops=[operator]):
            yield _replaced(node, ops=[OPPOSITE[type(operator)]()])
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in OPPOSITE:
            yield _replaced(node, op=OPPOSITE[type(operator)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=inner):
            yield inner
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Constant(value=str(value)) if value and " " not in value:
            yield ast.Constant(f"{value}_")
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield _replaced(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Name(id=name) if name in NAMES:
            yield ast.Name(NAMES[name])
        case ast.Call(args=[ast.expr() as first, ast.expr() as second, *rest]):
            if ast.dump(first) != ast.dump(second) and not isinstance(first, ast.Starred):
                yield _replaced(node, args=[second, first, *rest])


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield all mutants of a module, without those of annotations, imports and texts for people."""
    tree = ast.parse((CHECKOUT / path).read_text(encoding="utf-8"))
    skipped = {id(part) for node in ast.walk(tree) for each in _left_out(node) for part in ast.walk(each)}
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            for place, node in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(node, ast.AST) or id(node) in skipped:
                    continue
                for changed in changes(node):
                    _put(parent, name, place, changed)
                    source = ast.unparse(ast.fix_missing_locations(tree))
                    _put(parent, name, place, node)
                    line = getattr(node, "lineno", 0)
                    yield Mutant(path, line, ast.unparse(node), ast.unparse(changed), source)


def _left_out(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        if part := getattr(node, name, None):
            yield part
    yield from getattr(node, "decorator_list", ())
    if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr):
        yield node
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        yield node


def _replaced(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _put(parent: ast.AST, name: str, place: int, node: ast.AST) -> None:
    value = getattr(parent, name)
    if isinstance(value, list):
        value[place] = node
    else:
        setattr(parent, name, node)


def notices(folder: Path, tests: list[str]) -> bool:
    """Return whether a test in a copy of the checkout fails, or hangs."""
    marks = "not slow and not process"
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", marks, *tests]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in (0, 5)  # 5: there is no test


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("package", type=Path, help="a folder or module, such as speedrunner/results")
    parser.add_argument("--count", type=int, default=50, help="mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    room = given.package.resolve()
    if not room.is_relative_to(CHECKOUT):
        parser.error(f"{given.package} is not in {CHECKOUT}")
    modules = sorted(room.rglob("*.py")) if room.is_dir() else [room]
    pool = [each for path in modules for each in mutants(path.relative_to(CHECKOUT))]
    chosen = random.Random(given.seed).sample(pool, min(given.count, len(pool)))
    killed = 0
    with TemporaryDirectory() as place:
        folder = Path(place) / "checkout"
        shutil.copytree(CHECKOUT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
        (folder / ".cache").symlink_to(CHECKOUT / ".cache")
        tests = "tests" / (room if room.is_dir() else room.parent).relative_to(CHECKOUT)
        if notices(folder, [str(tests)]):
            raise SystemExit(f"error: the tests in {tests} fail without a mutant")
        for number, each in enumerate(chosen, start=1):
            file = folder / each.path
            original = file.read_text(encoding="utf-8")
            file.write_text(each.source, encoding="utf-8")
            own = "tests" / each.path.parent / f"test_{each.path.name}"
            stages = [own, tests] if (CHECKOUT / own).exists() else [tests]
            found = any(notices(folder, [str(stage)]) for stage in stages)
            file.write_text(original, encoding="utf-8")
            killed += found
            if not found:
                print(f"survived: {each.path}:{each.line}: {each.before}  ->  {each.after}")
            print(f"{killed} of {number} killed ({len(pool)} possible)", file=sys.stderr)
    print(f"{killed} of {len(chosen)} mutants of {given.package} were killed ({killed / len(chosen):.0%})")


if __name__ == "__main__":
    main()
