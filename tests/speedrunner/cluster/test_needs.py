"""What runs need of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.model_configs import load_model_config
from speedrunner.cluster.needs import find_needs
from speedrunner.config.schema import InvalidConfig


def test_a_run_has_one_model_for_all_roles() -> None:
    found = find_needs(["model=tiny", "env=babyai", "run.dir=somewhere/one"])
    assert found.models == [load_model_config("tiny")]
    assert [each.name for each in found.environments] == ["babyai"]
    assert found.gpus == 0


def test_nothing_is_started_for_what_runs_elsewhere() -> None:
    attached = find_needs(["model=qwen3-8b", "serving.url=http://127.0.0.1:8000/v1"])
    assert attached.gpus == 0
    assert attached.models == [load_model_config("qwen3-8b")]  # whose tokenizer is needed here


def test_a_list_of_runs_names_each_thing_once(tmp_path: Path) -> None:
    found = find_needs(["experiment=main", "scale=smoke"], tmp_path)
    assert len(found.setups) > 10
    assert [model_config.name for model_config in found.models] == ["tiny-random"]
    assert {each.name for each in found.environments} == {"babyai", "scienceworld", "crafter"}
    assert found.words == "experiment=main scale=smoke"
    assert found.doctor == f"srun speedrunner doctor experiment=main scale=smoke --dir={tmp_path}"


@pytest.mark.parametrize("given", [[], ["model=tiny"]])
def test_a_folder_of_runs_is_for_lists(given: list[str], tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"--dir works only with a list of runs .*; .* run\.dir=PATH"):
        find_needs(given, tmp_path)
