"""Compose a configuration from `configs/`, the model configs, and overrides of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from serving.model_configs import MODELS, describe_model_name
from speedrunner.config.names import (
    CONFIGS,
    SEED,
    choose,
    describe_start,
    read_mapping,
    read_source,
    run_name,
)
from speedrunner.config.schema import (
    ClassConfig,
    Config,
    InvalidConfig,
    default_mapping,
    from_mapping,
    to_mapping,
)
from speedrunner.plain.plain_records import as_written, keys_of, suggest, unknown_key
from speedrunner.plain.plain_yaml import NotPlain, read_value

GROUPS = ("env", "method", "model", "prices", "sandbox")
OPEN_GROUPS = ("env", "method")
"""Groups that also accept a `package.module:Class`."""

LISTS = ("experiment", "scale")
"""Keys of the commands that play runs, which choose the runs and their size."""

CHOOSERS = ("preset", *LISTS)
"""Keys that choose a file of `configs/` and are no part of a configuration."""

ELSEWHERE = dict.fromkeys(OPEN_GROUPS, "package.module:Class") | {
    "model": "model=PATH/TO/MODEL.yaml",
    "prices": "prices=PATH/TO/LIST.yaml",
}
"""Other values that a group accepts."""

YAML = (".yaml", ".yml")


def compose(overrides: Sequence[str], *, base: Config | None = None) -> Config:
    """Compose and check a configuration.

    Args:
        overrides: `env=babyai` selects a file of a group, `run.rollouts=20` sets a value (`read_value`),
            `env=package.module:Class` selects a user's environment (or method), with options that are set
            like any other. `preset=paper` sets the values of a file, unless others do. Mappings are
            merged, lists are replaced.
        base: an existing run's configuration, which replaces the defaults; selecting a group nevertheless
            replaces its whole section.

    Raises:
        InvalidConfig: an override is invalid or has an unknown name; a value has the wrong type or makes no
            sense; a file of `configs/` cannot be read. Options of environment and method are only checked
            when these are created.
    """
    choices, settings = _read(overrides)
    if base is None:
        content = default_mapping()
        defaults = read_mapping(CONFIGS / "config.yaml")
        for group in GROUPS:
            choice = defaults.pop(group, None)
            if group not in choices:
                group_file(group, choice)  # raises if there is no such choice
                choices[group] = choice
        _merge(content, defaults)
    else:
        content = {key: part for key, part in to_mapping(base).items() if key not in choices}
    for group, choice in choices.items():
        file = Path(choice) if choice.endswith(YAML) else CONFIGS / group / f"{choice}.yaml"
        is_name = group == "model" or (group in OPEN_GROUPS and ":" in choice)
        _merge(content, {group: {"name": choice} if is_name else read_mapping(file)})
    for key, value in settings:
        _merge(content, _nest(key, value))
    run = content.get("run")
    if unnamed := isinstance(run, dict) and run.get("dir") is None:
        content["run"] = {**run, "dir": "runs"}
    config = from_mapping(content)
    options = {key: config.run.seed if value == SEED else value for key, value in config.env.options.items()}
    config = msgspec.structs.replace(config, env=ClassConfig(config.env.name, options))
    if base is None or config.run.start_from != base.run.start_from:
        config = msgspec.structs.replace(config, start=describe_start(config, read_source(config)))
    path = Path("runs", run_name(config)) if unnamed else Path(config.run.dir).expanduser()
    return config.with_run(dir=str(path))


def name_method(overrides: Sequence[str]) -> str:
    """Return the name of the method that overrides select, as in the names of conditions.

    Raises `InvalidConfig`.
    """
    choices, settings = _read(overrides)
    options = {key.removeprefix("method."): value for key, value in settings if key.startswith("method.")}
    return choose("method", ClassConfig(str(options.pop("name", choices.get("method"))), options)).text


def group_choices(group: str) -> dict[str, Path]:
    """Return the values of `GROUP=`, sorted, with the file of each; see `ELSEWHERE` for more."""
    folder = MODELS if group == "model" else CONFIGS / group
    return dict(sorted((file.stem, file) for file in folder.glob("*.yaml")))


def group_file(group: str, choice: object) -> Path:
    """Return the file of a group's choice. Raises `InvalidConfig`."""
    files = group_choices(group)
    if choice not in files:
        raise _unknown_choice(group, as_written(choice))
    return files[str(choice)]


def _nest(key: str, value: object) -> dict[str, Any]:
    """Return nested mappings with one value, for a key with dots."""
    first, _, rest = key.partition(".")
    return {first: _nest(rest, value) if rest else value}


def _merge(into: dict[str, Any], changes: Mapping[str, Any], prefix: str = "") -> None:
    """Set values in nested mappings. Raises `InvalidConfig` where a list meets a mapping."""
    for key, value in changes.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value, f"{prefix}{key}.")
        elif isinstance(old, dict | list) and isinstance(value, dict | list) and type(old) is not type(value):
            raise InvalidConfig(f"{prefix}{key} takes another kind of value: a list or a mapping")
        else:
            into[key] = value


def _read(overrides: Sequence[str]) -> tuple[dict[str, str], list[tuple[str, Any]]]:
    """Return the choice of each selected group, and values by their keys, which may not exist.

    Unknown keys are found later, in the composed configuration, like those of files.
    """
    choices: dict[str, str] = {}
    settings: list[tuple[str, Any]] = []
    for text in overrides:
        key, equals, written = text.partition("=")
        if not key or not equals or key.startswith("-"):
            raise InvalidConfig(f"cannot read {text!r}: write KEY=VALUE, such as run.rollouts=20")
        try:
            value = read_value(written)
        except NotPlain as error:
            raise InvalidConfig(f"cannot read {text!r}: {error}") from None
        if key in LISTS:
            raise InvalidConfig(f"{text}: only `speedrunner run` and `speedrunner sweep` take experiments")
        if key == "preset":  # settings that all others override
            settings[:0] = read_mapping(group_file(key, value)).items()
            continue
        if key.partition(".")[0] not in {*GROUPS, *Config.__struct_fields__}:
            raise InvalidConfig(unknown_key(key, value, [*keys_of(Config), *GROUPS, *CHOOSERS]))
        if key not in GROUPS:
            settings.append((key, value))
            continue
        if key in choices:
            raise InvalidConfig(f"{text}: {key} is set twice")
        choice = as_written(value)
        is_own = ":" in choice if key in OPEN_GROUPS else key in ELSEWHERE and choice.endswith(YAML)
        if not is_own and choice not in group_choices(key):
            raise _unknown_choice(key, choice)
        choices[key] = choice
    return choices, settings


def _unknown_choice(group: str, choice: str) -> InvalidConfig:
    if group == "model" and (is_model := describe_model_name(choice)):
        return InvalidConfig(is_model)
    known = group_choices(group)
    near = suggest(choice, known)
    names = f"`speedrunner list {group}s`" if group in ("model", "experiment") else ", ".join(known)
    there_are = names + (f", or {ELSEWHERE[group]}" if group in ELSEWHERE else "")
    return InvalidConfig(f"{group}={choice} is unknown{near}; choices: {there_are}")
