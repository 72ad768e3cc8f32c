"""Runs of an experiment that evaluate parts of a stored library.

    - run.start_from: ???               # given on the command line: RUN or RUN:VERSION
      run.rollouts: 0
      library.hide: {public: each}      # or {public: shapley}; also library.remove: {public: each}

The runs have the settings of the run that is named, except for those of the entry and of the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.results.coalitions import DESIGNS, hidden_sets
from speedrunner.runs.setup import set_up
from speedrunner.runs.stored_setup import evaluation_config

GIVEN = "???"
"""Value of `run.start_from` for a policy that the command line must name."""

PARTS = ("library.hide", "library.remove")


def stored_runs(source: str, overrides: Sequence[str], parts: Mapping[str, Any]) -> list[Config]:
    """Return the configurations that evaluate the policy `source` with parts of its library.

    Args:
        source: `RUN` or `RUN:VERSION`.
        overrides: settings that differ from those of the stored run.
        parts: values of `PARTS` that name several sets of skills.

    Raises:
        InvalidConfig: no policy is named; the policy has no public skill, or too many; or some skills cannot
            be removed, because others call them.
        RunDirectoryError: the run or its policy does not exist, or is damaged.
    """
    if source == GIVEN:
        raise InvalidConfig(
            "name the policy to evaluate with run.start_from=RUN or RUN:VERSION; `speedrunner sweep"
            " experiment=main` plays runs that learn policies"
        )
    config = evaluation_config(source, [*overrides, "run.dir=-"])
    if not parts:
        return [config]
    if len(parts) > 1:
        raise InvalidConfig(f"{' and '.join(parts)} cannot both name several sets of skills")
    ((key, value),) = parts.items()
    design = next((each for each in DESIGNS if value == {"public": each}), None)
    if design is None:
        raise InvalidConfig(f"{key}={value} is not one of {', '.join(f'{{public: {d}}}' for d in DESIGNS)}")
    setup = set_up(config, plays_here=False)
    library = setup.actor_spec(setup.initial_policy()).library
    names = [each.name for each in library.public]
    if key == "library.remove":
        _require_removable({name: library.callers(name) for name in names})
    try:
        sets = hidden_sets(design, names)
    except ValueError as error:
        raise InvalidConfig(f"run.start_from={config.run.start_from}: {error}") from None
    field = key.partition(".")[2]
    return [replace(config, library=replace(config.library, **{field: skills})) for skills in sets]


def _require_removable(callers: Mapping[str, Sequence[str]]) -> None:
    blocked = {name: those for name, those in callers.items() if those}
    if blocked:
        lines = "; ".join(f"{name} (called by {', '.join(those)})" for name, those in blocked.items())
        raise InvalidConfig(
            f"{len(blocked)} of {len(callers)} skills cannot be removed, because others call them: {lines}."
            " Use library.hide, which leaves them callable by other skills"
        )
