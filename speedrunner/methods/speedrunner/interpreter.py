"""The inducer's code interpreter: a Python session over the run's trajectories and libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from speedrunner.config.schema import SandboxConfig
from speedrunner.methods import Library, Primitive
from speedrunner.workers.sandbox.code_session import CodeSession

OUTPUT_CHARS, CODE_WALL_S = 8_000, 60.0
"""Maximum output in characters, and maximum seconds, of one piece of the inducer's code."""

DRAFT_WALL_S = 30.0
"""Maximum seconds for importing the draft."""

_BOOTSTRAP = """\
def _begin(session):
    import linecache, sys, types
    for name, source in {sources!r}.items():
        module, file = types.ModuleType(name), "<" + name + ">"
        sys.modules[name], module.__file__ = module, file
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    module.begin(session, {primitives!r})

_begin(globals())
del _begin
"""
"""Loads `workspace.py` and its dependencies as separate modules, out of reach of the inducer's variables."""

_MODULES = {"speedrunner.agents.reading": "speedrunner.agents", "workspace": __package__}
"""Module names in the session -> the packages that have their files."""

_SET_DRAFT = "from workspace import set_draft as _set_draft\n_set_draft({source!r})"
"""Imports the function each time, since the inducer's code may have taken the name."""


class Interpreter(CodeSession):
    """Runs the inducer's code in the sandbox during one sleep. Use it as an async context manager.

    Args:
        sandbox: how the code is confined.
        folders: readable folders: `trajectories`, `policies` and `sleeps`; see `History.files`.
        primitives: names that raise an error when called, since there is no environment.
        draft: returns the current library, which the code can import.
    """

    def __init__(
        self,
        sandbox: SandboxConfig,
        folders: Mapping[str, Path],
        primitives: tuple[Primitive, ...],
        draft: Callable[[], Library],
    ) -> None:
        sources = {
            name: files(package).joinpath(f"{name.rpartition('.')[2]}.py").read_text(encoding="utf-8")
            for name, package in _MODULES.items()
        }
        super().__init__(
            sandbox,
            mounts=folders,
            bootstrap=_BOOTSTRAP.format(
                sources=sources,
                primitives={primitive.name: _list_defaults(primitive) for primitive in primitives},
            ),
            output_chars=OUTPUT_CHARS,
        )
        self._draft = draft

    async def execute_code(self, code: str) -> str:
        """Run Python code in your session. The reply is what the code printed, then the value of its last
        expression or its traceback."""
        draft = _SET_DRAFT.format(source=self._draft().source)
        taken = await self.execute(draft, DRAFT_WALL_S)
        notes = [f"[{taken.lost}]"] if taken.lost else []
        if taken.lost:  # the process ended, and a new one has no draft yet
            taken = await self.execute(draft, DRAFT_WALL_S)
        if taken.error:
            notes.append(f"[the draft cannot be imported: {taken.error}]")
        said = await self.execute(code, CODE_WALL_S)
        return "\n".join([*notes, said.text or "(no output)"])


def _list_defaults(primitive: Primitive) -> dict[str, Any]:
    """Return a primitive's parameters in order, each with its default; `...` if there is none."""
    parameters = primitive.signature.parameters.values()
    return {one.name: ... if one.default is one.empty else one.default for one in parameters}
