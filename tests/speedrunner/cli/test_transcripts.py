"""What each command prints on small runs, and for mistakes: the transcripts in `tests/golden/cli`.

To add a case, write its line (`$ speedrunner ...`) into a transcript and call `pytest --update`.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer import rich_utils

from serving.model_configs import CHECKOUT
from tests.scripted_runs import in_process
from tests.speedrunner.results import small_runs
from tests.speedrunner.results.small_runs import SmallRun

PLAN = """- env: babyai
  env.num_dists: 0
  env.description: paper
  method: speedrunner
  model: tiny-random
  run.seed: [0, 1]
  run.rollouts: 20
  run.test_episodes: 4
"""

FILES = {file.stem: file for file in sorted((CHECKOUT / "tests/golden/cli").glob("*.txt"))}

WITH_PROCESSES = ("run", "sweep", "episode", "bench", "cluster")
"""Transcripts with commands that start processes."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, tiny_folder: str) -> Path:
    """Runs `a`, `b` and, with other settings of the environment, `c`; modules of skills; other folders.

    The random model is built, so that no command prints how it is built.
    """
    folder = tmp_path_factory.mktemp("template")
    small_runs.learnt(folder / "runs/a", run={"dir": "runs/a"})
    asi = {"run": {"dir": "runs/b", "rollouts": 2, "seed": 1}, "method": {"name": "asi"}}
    small_runs.one_sleep(folder / "runs/b", [0.5, 0.0], [1.0, None], **asi)
    SmallRun(folder / "runs/c", run={"dir": "runs/c"}, env={"num_dists": 4}).policy(0, {})
    (folder / "runs/b/policies/v0001/notes.md").write_text("Walls \x1b[2Jhurt.")
    (folder / "plan.yaml").write_text(PLAN)
    for name in ("empty", "folder"):
        (folder / name).mkdir()
    (folder / "folder/thesis.tex").write_text("All of it.")
    return folder


@pytest.fixture
def workplace(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the template as the current folder."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))  # for the corridor
    monkeypatch.setattr(rich_utils, "FORCE_TERMINAL", None)
    folder = shutil.copytree(template, tmp_path / "here")
    monkeypatch.chdir(folder)
    return folder


def transcript(lines: list[str], folder: Path) -> str:
    """Return commands with their output, as on a terminal, without what differs between machines."""
    shown = []
    for line in lines:
        done = in_process(*shlex.split(line))
        status = f"[exit status {done.returncode}]\n" if done.returncode else ""
        shown.append(f"$ speedrunner {line}\n{done.stdout}{done.stderr}{status}")
    text = "\n".join(shown).replace(str(folder), "HERE").replace(str(CHECKOUT), "CHECKOUT")
    text = re.sub(r'"(quiet_s|seconds)":[0-9.e-]+', r'"\1":SECONDS', text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.process] * (name in WITH_PROCESSES)) for name in FILES],
)
def test_commands_print_what_their_transcript_shows(
    name: str, workplace: Path, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = re.findall(r"^\$ speedrunner (.*)$", FILES[name].read_text(), re.MULTILINE)
    assert lines
    golden(f"cli/{name}.txt", transcript(lines, workplace))
