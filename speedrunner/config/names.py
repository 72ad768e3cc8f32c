"""Name runs by their parts, and by differences from the files of `configs/`."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from serving.model_configs import CHECKOUT
from speedrunner.config.condition import (
    Choice,
    ConditionId,
    ModelVariant,
    Option,
    Start,
    Treatment,
    plain_name,
)
from speedrunner.config.schema import (
    ClassConfig,
    Config,
    InvalidConfig,
    ModelOptions,
    from_mapping,
    read_file,
)

CONFIGS = CHECKOUT / "configs"

SEED = "${run.seed}"
"""Value for the run's seed in files of environments; the seed is named separately."""

SWITCHES = {"on": True, "true": True, "off": False, "false": False}

THINKING = "thinking_tokens"
"""The field of a role whose changes are part of a name."""


def identify_condition(config: Config) -> ConditionId:
    """Return the identity of a run's condition."""
    treatment = Treatment(
        choose("method", config.method, config.run.seed),
        wording=config.run.wording,
        visible_last=config.library.visible_last,
        searches=config.library.shown == "search",
        start=config.start or describe_start(config, read_source(config)),
    )
    return ConditionId(choose("env", config.env, config.run.seed), treatment, _choose_model(config.model))


def run_name(config: Config) -> str:
    """Return the name of a run's folder: its condition and its seed."""
    return "-".join([*identify_condition(config).names, f"seed{config.run.seed}"])


def choose(group: str, chosen: ClassConfig, seed: int = 0) -> Choice:
    """Return an environment or a method with its options that differ from the group's file."""
    defaults = {key: seed if value == SEED else value for key, value in _file(group, chosen.name).items()}
    options = {
        key: value for key, value in chosen.options.items() if value != defaults.get(key, msgspec.UNSET)
    }
    return Choice(chosen.name, {key: _plain_option(value) for key, value in options.items()})


def _plain_option(value: object) -> Option:
    if (switch := SWITCHES.get(str(value).lower())) is not None:
        return switch
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _choose_model(model: ModelOptions) -> ModelVariant:
    name = Path(model.name).stem if model.name.endswith((".yaml", ".yml")) else model.name
    return ModelVariant(
        plain_name(name),
        has_cache=model.prefix_caching is not False,
        context=model.context,
        actor_thinking=model.actor.get(THINKING),
        inducer_thinking=model.inducer.get(THINKING),
    )


def describe_start(config: Config, source: Config | None) -> Start | None:
    """Return the start of a run as it differs from the run itself; `None` for a run from the beginning.

    Args:
        source: the configuration of the run in `run.start_from`; `None`: there is no such run.
    """
    if (start_from := config.run.start_from) is None:
        return None
    path, version = split_version(start_from)
    has_history = config.run.carry_history or not config.run.rollouts
    start = Start(Choice(path.name), version=version or "", has_history=has_history)
    if source is None:
        return start
    env, treatment, model = msgspec.structs.astuple(identify_condition(source))
    treatment = msgspec.structs.replace(treatment, wording=0)  # the run's own is named
    if source.run.seed != config.run.seed:
        seed = source.run.seed
        return msgspec.structs.replace(start, env=env, treatment=treatment, model=model, seed=seed)
    own_model = _choose_model(config.model)
    is_same_method = treatment == Treatment(choose("method", config.method, config.run.seed))
    return msgspec.structs.replace(
        start,
        env=env,
        treatment=None if is_same_method else treatment,
        model=None if model in (own_model, own_model.unchanged) else model,
    )


def read_source(config: Config) -> Config | None:
    """Return the configuration of the run in `run.start_from`; `None` if there is no such run."""
    file = split_version(config.run.start_from or "")[0] / "config.yaml"
    try:
        return from_mapping(read_file(file)) if file.is_file() else None
    except InvalidConfig:
        return None


def split_version(policy: str) -> tuple[Path, str | None]:
    """Return the run and the version in `RUN[:VERSION]`; `None`: no version.

    A version is returned as its number (`2` for `v0002`), or as it is if it has none.
    """
    path, colon, version = policy.rpartition(":")
    if not colon or Path(policy).exists():
        return Path(policy), None
    digits = version.removeprefix("v")
    return Path(path), str(int(digits)) if digits.isdecimal() else version


def _file(group: str, name: str) -> Mapping[str, Any]:
    """Return the content of a group's file; empty if there is none."""
    file = CONFIGS / group / f"{name}.yaml"
    return _read_mapping(file) if re.fullmatch(r"\w+", name) and file.exists() else {}


def read_mapping(file: Path) -> dict[str, Any]:
    """Return the settings in a file, which may be empty. Raises `InvalidConfig`."""
    return copy.deepcopy(_read_mapping(file))


@cache
def _read_mapping(file: Path) -> dict[str, Any]:
    content = read_file(file)
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise InvalidConfig(f"{file} must be a mapping of settings")
    return content
