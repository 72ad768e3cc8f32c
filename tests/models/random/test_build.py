"""The recipe of the random models, as a command."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest

from serving.model_configs import load_model_config
from serving.weights import prepare
from tests.models.conftest import run_recipe

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tiny_folder: str) -> Path:
    return Path(tiny_folder)


def test_another_build_has_the_same_bytes(folder: Path, dense_folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in dense_folder.iterdir())
    assert filecmp.cmpfiles(folder, dense_folder, names, shallow=False) == (names, [], [])


def test_a_build_of_the_hybrid_model_in_place_of_the_other_one_s_has_the_bytes_of_any_other_build(
    hybrid_folder: Path,
) -> None:
    assert [path.name for path in hybrid_folder.parent.iterdir()] == [hybrid_folder.name]
    other = prepare(load_model_config("tiny-hybrid"), lambda line: None)
    names = sorted(path.name for path in hybrid_folder.iterdir())
    assert names == sorted(path.name for path in Path(other).iterdir())
    assert filecmp.cmpfiles(hybrid_folder, other, names, shallow=False) == (names, [], [])


def test_a_finished_build_is_left_as_it_is(folder: Path) -> None:
    before = (folder / "model.safetensors").stat()
    again = run_recipe("tiny-random", folder)
    assert again.stdout == ""
    assert (folder / "model.safetensors").stat() == before


def test_a_folder_that_is_not_a_build_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused = run_recipe("tiny-random", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"error: {tmp_path} exists and was not built here: name another folder, or remove it\n"
    )
    assert (tmp_path / "notes.txt").read_text() == "mine"
