"""Name runs in folders and tables: by their parts, and by differences from the files of `configs/`."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from serving.model_configs import CHECKOUT
from speedrunner.config.schema import ClassConfig, Config, InvalidConfig, LibraryConfig, read_file

CONFIGS = CHECKOUT / "configs"

SEED = "${run.seed}"
"""Value for the run's seed in files of `configs/`; the seed is named separately."""

LISTED_CHARS = 60
"""Maximum characters of skills' names in a run's name; folders have at most 255 bytes."""

ON_OFF = {"on": "", "true": "", "off": "no-", "false": "no-"}
"""How the name of a switch begins, by its value."""

THINKING = "thinking_tokens"
"""The field of a role whose changes are part of a name."""


class ConditionName(msgspec.Struct, frozen=True, order=True):
    """The name shared by runs that differ only in their seed, and perhaps in their length.

    Attributes:
        env: the environment: `babyai`, `scienceworld-family3`, `crafter-zombie_frequency0`.
        method: the method with its options (`name_class`), and the run whose policy it starts from: `asi`,
            `speedrunner-no-interpreter`, `voyager-visible_last50-from_crafter`.
        model: the actor's model config, that of the other roles if it is another one, and changes of prefix
            cache, context and thinking budgets: `qwen3.5-27b-context131072-actor_thinking1024`.
    """

    env: str
    method: str
    model: str

    def __str__(self) -> str:
        return f"{self.env} {self.method} {self.model}"


def condition_name(config: Config) -> ConditionName:
    """Return the name of a run's condition."""
    model, library, start_from = config.model, config.library, config.run.start_from
    env = _plain(name_class("env", config.env, config.run.seed))
    method = _plain(name_class("method", config.method, config.run.seed))
    model_configs = "+".join(
        _model_config(model_config)
        for model_config in dict.fromkeys((model.name, model.inducer_name or model.name))
    )
    variant = "-uncached" if model.prefix_caching is False else ""
    variant += f"-context{model.context}" if model.context is not None else ""
    for role, changes in (("actor", model.actor), ("inducer", model.inducer)):
        variant += f"-{role}_thinking{_plain(str(changes[THINKING]))}" if THINKING in changes else ""
    begin = method
    begin += f"-wording{config.run.wording}" if config.run.wording else ""
    begin += name_shown(library)
    if start_from is not None:
        source = Path(start_from).name.removesuffix(f"-seed{config.run.seed}")
        for part in (variant, f"-{model_configs}", f"-{method}"):
            source = source.removesuffix(part)
        source = re.sub(r"-wording\d", "", source)  # the run's own is in the name already
        begin += f"-from_{_plain(source)}"
        begin += "-without_history" if config.run.rollouts and not config.run.carry_history else ""
    return ConditionName(env, begin, model_configs + variant)


def run_name(config: Config) -> str:
    """Return the name of a run's folder: its condition and its seed."""
    found = condition_name(config)
    return f"{found.env}-{found.method}-{found.model}-seed{config.run.seed}"


def name_class(group: str, chosen: ClassConfig, seed: int = 0) -> str:
    """Return the name of an environment or a method with its options that differ from the group's file.

    An option that is on is named alone, one that is off after `no-`, any other with its value:
    `speedrunner-no-interpreter`, `speedrunner-prompt_asi_style`.
    """
    defaults = {key: seed if value == SEED else value for key, value in _file(group, chosen.name).items()}
    return chosen.name + "".join(
        _name_option(key, value)
        for key, value in sorted(chosen.options.items())
        if value != defaults.get(key, msgspec.UNSET)
    )


def _name_option(key: str, value: object) -> str:
    if (switch := str(value).lower()) in ON_OFF:
        return f"-{ON_OFF[switch]}{key}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"-{key}{'' if isinstance(value, int) else '_'}{value}"


def name_shown(library: LibraryConfig) -> str:
    """Return the part of a name that says which skills are shown, such as `-visible_last50`; "" for all."""
    last = "" if library.visible_last is None else f"-visible_last{library.visible_last}"
    return last + (f"-hide_{_listed(library.hide)}" if library.hide else "")


def _listed(skills: Sequence[str]) -> str:
    """Return names of skills joined, or their number and a digest if that is long."""
    text = "+".join(_plain(each) for each in sorted(skills))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return text if len(text) <= LISTED_CHARS else f"{len(skills)}_{digest}"


def _model_config(model_config: str) -> str:
    """Return the name of a model config, or of its file."""
    return _plain(Path(model_config).stem if model_config.endswith((".yaml", ".yml")) else model_config)


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text)


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
