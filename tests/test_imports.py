"""Importing our packages stays light: what is heavy is imported where it is used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

CORE = ("agents", "bench", "config", "hosts", "library", "methods", "runs", "sandbox", "store")
ABOVE = ("cli", "cluster", "data", "experiments", "export", "report", "verification", "view")
"""Rooms of `speedrunner`, and those that stand on them."""

ROOT = Path(__file__).parents[1]
HEAVY = ["torch", "transformers", "vllm", "minigrid", "gymnasium", "pygame", "numpy", "pandas"]


@pytest.mark.parametrize("package", ["envs", "serving", "speedrunner"])
def test_a_bare_import_is_quiet_and_loads_nothing_heavy(package: str) -> None:
    program = f"import sys, {package}; print([name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


def test_options_and_splits_of_babyai_need_no_simulator() -> None:
    program = (
        "import sys, envs, envs.registry; envs.splits('babyai'); envs.registry.REGISTRY.find('babyai'); "
        f"envs.make('babyai'); print([name for name in {HEAVY} if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


def test_the_command_line_s_help_waits_for_nothing_that_only_its_commands_need() -> None:
    drawing = ["matplotlib", "starlette", "uvicorn", "jinja2", "pygments"]
    others = ["hydra", "omegaconf", "aiohttp", "prometheus_client", "scienceworld", "psutil"]
    heavy = [*HEAVY, *others, *drawing]
    program = f"import sys, speedrunner.cli.main; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


def test_nothing_of_the_core_imports_what_stands_on_it() -> None:
    pattern = re.compile(rf"^\s*(?:from|import) speedrunner\.({'|'.join(ABOVE)})\b", re.MULTILINE)
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for room in CORE
        for file in (ROOT / "speedrunner" / room).rglob("*.py")
        for name in pattern.findall(file.read_text())
    }
    assert found == set()
