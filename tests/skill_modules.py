"""Modules of skills for the corridor, sound and unsound, as people give them to `speedrunner library`."""

from __future__ import annotations

from tests.scripted_runs import TO_FLAG

MODULE = f'''{TO_FLAG}


def _peek() -> str:
    """Look."""
    return look()


def twice(steps: int, direction: str = "right") -> str:
    """Walk twice."""
    return walk(steps, direction) + " " + walk(steps, direction)


def fall() -> str:
    """Walk into the pit, and on."""
    walk(steps=-5)
    return walk()


def stumble() -> str:
    """Go wrong."""
    look()
    return 1 / 0


def stay() -> str:
    """Never come back."""
    walk()
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
'''

MODULES = {
    "skills.py": MODULE,
    "untyped.py": MODULE.replace("steps: int, direction", "steps, direction") + "import os\n",
    "bad_class.py": f"class W:\n    x = 1 / 0\n\n\n{MODULE}".replace("return look()", "return W.x"),
    "long.py": f"X = '{'x' * 300_000}'\n\n\n{MODULE}".replace("return look()", "return X"),
    "deep.py": MODULE.replace("steps: int", f"steps: {'list[' * 20}int{']' * 20}"),
    "unknown.py": MODULE.replace("1 / 0", "fly()"),
    "broken.py": "def f(:",
}
"""Modules by file name; all but `skills.py` break a rule."""
