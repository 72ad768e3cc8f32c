"""The files in `configs/`: each composes, says nothing that nobody reads, keeps to the code's defaults."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

import envs
from envs import env_registry as environments
from envs.class_registry import Registry
from speedrunner.cluster.cluster_config import Cluster
from speedrunner.config import compose as composing
from speedrunner.config.compose import CONFIGS, GROUPS, OPEN_GROUPS, compose
from speedrunner.config.schema import (
    ClassConfig,
    Config,
    InvalidConfig,
    ModelOptions,
    RunConfig,
    default_mapping,
)
from speedrunner.methods import method_registry as methods
from speedrunner.plain.plain_records import flat
from tests.registered import options

FILES = sorted(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.*"))
APART = ("experiment", "scale", "cluster", "preset")
"""Folders whose files are no groups: lists of runs, and settings for these; see test_grid.py and
cluster/test_settings.py."""
COMPOSED = [file for file in FILES if file.partition("/")[0] not in APART]


def content(file: str) -> dict[str, Any]:
    loaded = yaml.safe_load((CONFIGS / file).read_text()) or {}
    assert isinstance(loaded, dict)
    return loaded


def choices(file: str) -> list[str]:
    """The overrides that choose a file."""
    group, _, choice = file.removesuffix(".yaml").rpartition("/")
    return [f"{group}={choice}"] if group else []


@pytest.mark.parametrize("file", COMPOSED)
def test_every_file_composes(file: str) -> None:
    """The environment and the method of what it chooses can be made, too."""
    config = compose(choices(file))
    envs.make(config.env.name, **config.env.options).close()
    methods.make(config.method.name, **config.method.options)


def test_there_are_no_files_but_the_groups() -> None:
    assert {file for file in COMPOSED if file.partition("/")[0] not in GROUPS} == {"config.yaml"}
    assert all(file.endswith(".yaml") for file in FILES)


def test_config_yaml_chooses_a_file_of_each_group() -> None:
    defaults = content("config.yaml")
    assert [*defaults] == [*GROUPS]
    assert all(choice in composing.group_choices(group) for group, choice in defaults.items())


def test_the_defaults_are_the_schema_s() -> None:
    found, nothing = compose([]), ClassConfig("-")
    bare = Config(RunConfig(found.run.dir), nothing, nothing, ModelOptions(found.model.name))
    assert replace(found, env=nothing, method=nothing) == bare


@pytest.mark.parametrize("file", [file for file in COMPOSED if file.partition("/")[0] not in OPEN_GROUPS])
def test_no_file_repeats_a_default_of_the_schema(file: str) -> None:
    """Files of environments and methods list all options: a run is named by what differs from them."""
    section, _, _ = file.rpartition("/")
    given = content(file)
    if not section:
        given = {key: value for key, value in given.items() if key not in GROUPS}
    defaults, values = flat(default_mapping()), flat({section: given} if section else given)
    assert {key: value for key, value in values.items() if defaults[key] == value} == {}


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("cluster/")])
def test_no_cluster_repeats_a_default(file: str) -> None:
    defaults = {each.name: each.default for each in msgspec.structs.fields(Cluster)}
    assert {key: value for key, value in content(file).items() if defaults[key] == value} == {}


def with_options(registry: Registry[Any]) -> dict[str, Any]:
    return {name: {"name": name, **options(registry, name)} for name in registry.registered}


def test_each_environment_has_a_file_with_all_its_options() -> None:
    files = {file.stem: content(f"env/{file.name}") for file in (CONFIGS / "env").iterdir()}
    assert files["crafter"].pop("seed") == "${run.seed}"  # it chooses the worlds (paper, Appendix D.1)
    files["crafter"]["seed"] = 0
    assert files == {
        name: {"name": name, **options(environments.REGISTRY, name)} for name in environments.ENVIRONMENTS
    }


def test_each_method_has_a_file_with_all_its_options() -> None:
    files = {file.stem: content(f"method/{file.name}") for file in (CONFIGS / "method").iterdir()}
    assert files == with_options(methods.REGISTRY)


def test_what_is_set_overrides_a_preset_in_any_order() -> None:
    assert compose(["run.rollouts=7", "preset=paper"]).run.rollouts == 7
    with pytest.raises(InvalidConfig, match="preset=papr is unknown"):
        compose(["preset=papr"])
