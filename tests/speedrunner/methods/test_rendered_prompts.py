"""Every prompt as the model reads it, as golden files: `pytest --update` rewrites them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.prompt_samples import NAMES, all_prompts

GOLDEN = Path(__file__).parents[2] / "golden" / "prompts"

Rendered = Callable[[str], dict[str, str]]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    @cache
    def rendered(name: str) -> dict[str, str]:
        return all_prompts(name, tmp_path_factory.mktemp(name))

    return rendered


@pytest.mark.parametrize("name", NAMES)
def test_prompts_read_as_their_golden_files(
    name: str, rendered: Rendered, golden: Callable[[str, str], None]
) -> None:
    for file, text in rendered(name).items():
        golden(f"prompts/{file}", text)


@pytest.mark.parametrize("name", NAMES)
def test_each_golden_file_belongs_to_a_prompt(name: str, rendered: Rendered) -> None:
    assert {f"{name}/{file.name}" for file in (GOLDEN / name).iterdir()} == {*rendered(name)}
