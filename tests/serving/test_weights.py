from __future__ import annotations

import sys
from pathlib import Path

import pytest

from serving import weights
from serving.errors import InvalidModelConfig, ServerFailed
from serving.model_configs import load_model_config
from serving.weights import prepare
from tests.serving.model_config_samples import COMMIT, HOSTED, write


def test_nothing_is_started_for_a_hosted_model(tmp_path: Path) -> None:
    model_config = load_model_config(write(tmp_path, **HOSTED))
    with pytest.raises(InvalidModelConfig, match=r"hosted at https://h/v1"):
        prepare(model_config, print)


def test_a_hub_model_is_left_to_the_engine(tmp_path: Path) -> None:
    model_config = load_model_config(write(tmp_path, path=None, id="Qwen/Q", revision=COMMIT))
    assert prepare(model_config, print) == "Qwen/Q"


def test_a_missing_folder_without_a_recipe_is_named(tmp_path: Path) -> None:
    model_config = load_model_config(write(tmp_path, path=str(tmp_path / "nowhere")))
    with pytest.raises(InvalidModelConfig, match=r"model 'm': no folder at .*nowhere"):
        prepare(model_config, print)


@pytest.mark.process
def test_a_recipe_makes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MODELS", tmp_path)
    (tmp_path / "recipe.py").write_text(
        "import pathlib, sys\nprint('drawing')\npathlib.Path(sys.argv[sys.argv.index('--out') + 1]).mkdir()\n"
    )
    model_config = load_model_config(write(tmp_path, path=str(tmp_path / "made"), recipe="recipe.py"))
    lines: list[str] = []
    assert prepare(model_config, lines.append) == str(tmp_path / "made")
    assert lines == [f"preparing {tmp_path / 'made'}"]


@pytest.mark.process
def test_a_failed_recipe_says_its_last_line_and_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "MODELS", tmp_path)
    (tmp_path / "recipe.py").write_text("raise SystemExit('no space left')")
    model_config = load_model_config(write(tmp_path, path=str(tmp_path / "made"), recipe="recipe.py"))
    with pytest.raises(ServerFailed, match="status 1: no space left") as caught:
        prepare(model_config, print)
    assert sys.executable in str(caught.value)
