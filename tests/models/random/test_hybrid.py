"""The bundled hybrid model's recipe: `models/random/hybrid.py` as the command that it is."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest

from serving.model_configs import load_model_config
from serving.weights import prepare

pytestmark = pytest.mark.slow


def test_a_build_in_place_of_the_other_recipe_s_has_the_bytes_of_any_other_build(hybrid_folder: Path) -> None:
    folder = hybrid_folder
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    other = prepare(load_model_config("tiny-hybrid"), lambda line: None)
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in Path(other).iterdir())
    assert filecmp.cmpfiles(folder, other, names, shallow=False) == (names, [], [])
