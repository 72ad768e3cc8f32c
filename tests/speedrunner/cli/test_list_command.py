"""The configuration as commented YAML: `speedrunner list keys`."""

from __future__ import annotations

import pytest
import yaml

from speedrunner.cli.list_command import commented_yaml
from speedrunner.config.compose import compose
from speedrunner.config.schema import Config, from_mapping
from speedrunner.plain.plain_records import keys_of
from tests.scripted_runs import in_process


@pytest.mark.parametrize("overrides", [[], ["env=crafter", "method=voyager", "model.actor.max_calls=3"]])
def test_it_reads_back_as_the_configuration(overrides: list[str]) -> None:
    config = compose(overrides)
    assert from_mapping(yaml.safe_load(commented_yaml(config))) == config


def test_every_key_is_explained() -> None:
    lines = commented_yaml(compose(["env=scienceworld"])).splitlines()
    bare = [
        line
        for above, line in zip(["", *lines], lines, strict=False)
        if line and not line.lstrip().startswith("#") and not above.lstrip().startswith("#")
    ]
    assert bare == []
    assert len(lines) > 2 * len(keys_of(Config))


def test_the_command_prints_it_with_values() -> None:
    done = in_process("list", "keys", "env=crafter", "env.zombie_frequency=2")
    assert "\n  zombie_frequency: 2" in done.stdout
    assert "preset=NAME" in done.stdout.partition("\nrun:")[0]
