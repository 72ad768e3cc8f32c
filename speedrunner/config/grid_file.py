"""The syntax of lists of runs. Each entry is a mapping of settings; lists in it multiply it.

    - env: scienceworld
      env.family: [3, 4]
      method: [react, asi]
      run.seed: [0, 1, 2]          # 12 runs
    - env: scienceworld
      env.family: 4
      method: asi
      run.seed: [0, 1, 2]
      run.start_from: {env.family: 3}    # start from the run that differs only in this; it is played first

Lists in `run.start_from` multiply an entry as well.

An entry may also be a text, `method=react run.seed=1`, or a list of such settings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedrunner.config.schema import InvalidConfig, read_file

Cell = dict[str, Any]
"""The settings of one run, by key; `run.start_from` may be a mapping of changes."""


def read_cells(file: Path) -> Iterator[Cell]:
    """Yield the entries of a list, one for each combination of their lists' values.

    Raises `InvalidConfig`.
    """
    entries = read_file(file)
    if not isinstance(entries, list) or not entries:
        raise InvalidConfig(f"{file} must be a list of runs, such as `- method=react run.seed=1`")
    for number, entry in enumerate(entries, start=1):
        own = entry.split() if isinstance(entry, str) else entry
        if isinstance(own, list) and own and all(isinstance(each, str) and "=" in each for each in own):
            pairs = [each.split("=", 1) for each in own]
            own = dict(pairs)
            if len(own) < len(pairs):
                raise InvalidConfig(f"{file}, run {number}: {entry!r} sets a key twice")
        if not isinstance(own, dict) or not own or not all(isinstance(key, str) for key in own):
            raise InvalidConfig(
                f"{file}, run {number}: {entry!r} must be a mapping of settings, or text such as KEY=VALUE"
            )
        axes = [_axis(value) for value in own.values()]
        if empty := [key for key, axis in zip(own, axes, strict=True) if not axis]:
            raise InvalidConfig(f"{file}, run {number}: {empty[0]} is an empty list, so no run results")
        for values in itertools.product(*axes):
            yield dict(zip(own, values, strict=True))


def _axis(value: Any) -> list[Any]:
    """Return the values of a setting; lists in a mapping multiply it."""
    if isinstance(value, Mapping):
        axes = itertools.product(*map(_axis, value.values()))
        return [dict(zip(value, values, strict=True)) for values in axes]
    return value if isinstance(value, list) else [value]


def setting_texts(cell: Cell) -> tuple[str, ...]:
    """Return settings as overrides."""
    return tuple(f"{key}={setting_text(key, value)}" for key, value in cell.items())


def setting_text(key: str, value: object) -> str:
    """Return a value in the syntax of overrides."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidConfig(f"{key}: {value!r} must be a single value")
