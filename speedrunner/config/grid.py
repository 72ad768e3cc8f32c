"""The runs of a list or of one of the paper's experiments.

A list is a YAML file. Each entry is a mapping of settings; lists in it multiply it:

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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from speedrunner.config.compose import LISTS, compose, group_choices, group_file, name_method
from speedrunner.config.names import CONFIGS, describe_start, read_mapping, run_name
from speedrunner.config.schema import Config, InvalidConfig, differences, read_file
from speedrunner.plain.plain_records import suggest

AT_ONCE = 64
"""Concurrent episodes over all runs of a sweep."""

START, SEED = "run.start_from", "run.seed"
OWN_TO_A_START = (START, "run.carry_history", "run.rollouts", "library.visible_last", "library.shown")
"""Settings that a run does not share with the run from which it starts."""


Cell = dict[str, Any]
"""The settings of one run, by key; `run.start_from` may be a mapping of changes."""


class GridRun(msgspec.Struct, frozen=True):
    """One run of a grid.

    Attributes:
        config: its configuration.
        overrides: the overrides that define it, without its directory.
        after: the directory of another run of the grid; this run starts with its newest policy.
        asked: whether it was requested; otherwise other runs need it as a start.
        place: where it is defined, for errors: `runs.yaml, run 3: `.
    """

    config: Config
    overrides: tuple[str, ...]
    after: str | None
    asked: bool
    place: str


@contextmanager
def prefix_errors(place: str, *errors: type[Exception]) -> Iterator[None]:
    """Begin the messages of these errors with the place of a run."""
    try:
        yield
    except errors as error:
        raise type(error)(f"{place}{error}") from None


class Grid:
    """A list of runs.

    Args:
        file: YAML, a list of entries; see above.
        given: settings for all runs. If runs of the list have the value, only these are selected (several
            values with commas: `env=babyai,crafter`); otherwise all runs get it. `method=NAME` selects by the
            name that a method has in the names of conditions: `speedrunner`, `speedrunner-no-interpreter`.
            `run.seed=0,1` replaces the seeds of all runs.
        scale: settings of a file of `configs/scale/`, which override the list's.
        root: the folder of the runs, by default `runs`.

    Raises `InvalidConfig`: the file is not a valid list.
    """

    def __init__(
        self, file: Path, given: Sequence[str] = (), scale: str = "paper", root: Path = Path("runs")
    ) -> None:
        self.file = file
        self.name = f"experiment={file.stem}" if file.parent == CONFIGS / "experiment" else str(file)
        self.root = root
        self._forced: Cell = read_mapping(group_file("scale", scale))
        self._cells = list(enumerate(read_cells(file), start=1))
        self._composed = cache(compose)
        self._given = {text.partition("=")[0] for text in given}
        for text in given:
            self._give(text)

    def runs(self) -> list[GridRun]:
        """Return the runs, each after the one from which it starts.

        Raises `InvalidConfig`: a run's settings contradict each other, or two runs have one directory.
        """
        runs: dict[str, GridRun] = {}
        for number, cell in self._cells:
            with prefix_errors(self._place(number), InvalidConfig):
                for run in self._laid_out(number, cell):
                    path = run.config.run.dir
                    if (other := runs.get(path)) is None:
                        runs[path] = run
                    elif unlike := differences(other.config, run.config):
                        what = f"another run has the directory {path} ({'; '.join(unlike)})"
                        raise InvalidConfig(f"{what}: select one, set run.dir for each, or use --dir=FOLDER")
                    else:
                        runs[path] = replace(other, asked=other.asked or run.asked)
        return list(runs.values())

    def _give(self, text: str) -> None:
        key, _, value = text.partition("=")
        if key == SEED:
            once: dict[str, tuple[int, Cell]] = {}
            for number, cell in self._cells:
                once.setdefault(repr(cell | {key: None}), (number, cell))
            seeds = value.split(",")
            self._cells = [(number, cell | {key: seed}) for number, cell in once.values() for seed in seeds]
            self._forced.pop(key, None)
            return
        for values in ([value], value.split(",")):
            cells = {
                text: [cell for cell in self._cells if text and self._has(cell[1], key, text)]
                for text in values
            }
            if all(cells.values()):
                chosen = [cell for selected in cells.values() for cell in selected]
                self._cells = [cell for cell in self._cells if cell in chosen]
                return
        full = [self._full(cell) for _, cell in self._cells]
        valued = [cell for cell in full if not isinstance(cell.get(key, {}), Mapping)]
        known = dict.fromkeys(self._value(key, cell) for cell in valued)
        is_method = ":" in value or value in group_choices("method")
        if any(cells.values()) or (known and key == "method" and not is_method):
            missing = ", ".join(text for text, chosen in cells.items() if not chosen)
            there_are = suggest(missing, known) or f"; choices: {', '.join(known)}"
            raise InvalidConfig(f"no run of {self.name} has {key}={missing}{there_are}")
        self._forced = self._forced | {key: value}

    def _has(self, cell: Cell, key: str, text: str) -> bool:
        if key == "method" and key in cell:
            return self._value(key, cell) == text
        full = self._full(cell)
        return key in full and not isinstance(full[key], Mapping) and setting_text(key, full[key]) == text

    def _value(self, key: str, cell: Cell) -> str:
        """Return the value of a key as it is selected.

        A method's name has its options, except for those that the command line selects or sets.
        """
        if key != "method":
            return setting_text(key, cell[key])
        own = {key: cell[key]}
        for name, value in cell.items():
            if name.startswith("method.") and name not in self._given:
                own[name] = value
        return name_method(setting_texts(own))

    def _full(self, cell: Cell) -> Cell:
        """Return the cell with the forced settings; a run that only evaluates still only evaluates."""
        forced = dict(self._forced)
        if str(cell.get("run.rollouts")) == "0":
            forced.pop("run.rollouts", None)
        return cell | forced

    def _laid_out(self, number: int, cell: Cell, asked: bool = True) -> list[GridRun]:
        """Return the run of a cell, after those from which it starts."""
        full = self._full(cell)
        start, before, after = full.pop(START, None), [], None
        if isinstance(start, Mapping):
            own = {key: value for key, value in cell.items() if key not in OWN_TO_A_START}
            before = self._laid_out(number, own | dict(start), asked=False)
            start = after = before[-1].config.run.dir
        if start is not None:
            full[START] = start
        overrides = setting_texts(full)
        config = self._composed(overrides)
        if before:
            config = replace(config, start=describe_start(config, before[-1].config))
        if "run.dir" not in full:
            config = config.with_run(dir=str(self.root / run_name(config)))
        return [*before, GridRun(config, overrides, after, asked, self._place(number))]

    def _place(self, number: int) -> str:
        return f"{self.name}, run {number}: "


def grid_of(given: Sequence[str], folder: Path | None = None) -> Grid:
    """Return the grid that a command names: `experiment=NAME`, or a file first; `scale=NAME`; other settings.

    Args:
        folder: the folder of the runs.

    Raises `InvalidConfig`: neither or both of experiment and file are named, or do not exist.
    """
    named = {key: [text for text in given if text.startswith(f"{key}=")] for key in LISTS}
    rest = [text for text in given if text not in chain(*named.values())]
    files = [text for text in rest[:1] if "=" not in text or Path(text).exists()]
    chosen = [*named["experiment"], *files]
    if len(chosen) != 1 or len(named["scale"]) > 1:
        raise InvalidConfig(
            "name one list of runs (experiment=NAME or a file) and at most one scale=NAME, not"
            f" {' and '.join([*chosen, *named['scale']]) or 'none'}"
        )
    scale = named["scale"][0].partition("=")[2] if named["scale"] else "paper"
    if files:
        return Grid(Path(files[0]), rest[1:], scale, folder or Path("runs"))
    file = group_file("experiment", chosen[0].partition("=")[2])
    return Grid(file, rest, scale, folder or Path("runs", scale))


def read_cells(file: Path) -> Iterator[Cell]:
    """Yield the entries of a list, one for each combination of their lists' values.

    Raises `InvalidConfig`.
    """
    entries = read_file(file)
    if not isinstance(entries, list) or not entries:
        raise InvalidConfig(f"{file} must be a list of runs, such as `- method=react run.seed=1`")
    for number, entry in enumerate(entries, start=1):
        own = entry.split() if isinstance(entry, str) else entry
        if isinstance(own, list) and own and all(isinstance(text, str) and "=" in text for text in own):
            pairs = [text.split("=", 1) for text in own]
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
        for values in product(*axes):
            yield dict(zip(own, values, strict=True))


def _axis(value: Any) -> list[Any]:
    """Return the values of a setting; lists in a mapping multiply it."""
    if isinstance(value, Mapping):
        axes = product(*map(_axis, value.values()))
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
