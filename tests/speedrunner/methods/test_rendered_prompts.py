"""Every prompt as the model reads it, as golden files: `pytest --update` rewrites them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, meta

from speedrunner.agents import actor
from speedrunner.methods.speedrunner import speedrunner_method
from tests.prompt_samples import NAMES, all_prompts

GOLDEN = Path(__file__).parents[2] / "golden" / "prompts"


@pytest.mark.parametrize("name", NAMES)
def test_prompts_read_as_their_golden_files(
    name: str, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    prompts = all_prompts(name, tmp_path)
    for file, text in prompts.items():
        golden(f"prompts/{file}", text)
    assert {f"{name}/{file.name}" for file in (GOLDEN / name).iterdir()} == prompts.keys()


@pytest.mark.parametrize(
    ("module", "names"), [(actor, "system"), (speedrunner_method, "goal_oriented system")]
)
def test_each_paraphrase_has_the_variables_and_branches_of_its_template(module: Any, names: str) -> None:
    prompts = Path(module.__file__).parent / "prompts"
    files = sorted(prompts.glob("wording_?/*.jinja"))
    assert [file.stem for file in files] == names.split() * 3  # docs/methods.md says what else never varies
    for file in files:
        own, default = (each.read_text() for each in (file, prompts / file.name))
        found = (meta.find_undeclared_variables(Environment().parse(text)) for text in (own, default))
        assert next(found) == next(found)
        assert re.findall(r"{%.*?%}", own) == re.findall(r"{%.*?%}", default)
        assert own.count("\n- ") == default.count("\n- ")
