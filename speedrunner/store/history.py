"""The history that a learner may read: training records of a run, with the visible part of outcomes.

This module alone decides what is visible. Held-out episodes never are. A run that started from another run
may have carried that run's training history with it:

    carried/0000/    the oldest earlier run
    carried/0001/    the run that started from it, and so on

Each folder has an earlier run's `config.yaml`, `trajectories`, `policies` and `sleeps`, up to the policy
version that the next run started from. Held-out episodes are not copied, so no learner can read them. The
files are copies: a hard link would change if the earlier run continued, and would break if a run moved to
another disk.

The earlier records are numbered so that the history is one sequence: version 0 of this run's library is the
version of the earlier run that it started from, so earlier batches and versions have negative numbers, and
earlier sleeps have 0 or less.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from envs import Outcome
from speedrunner.plain.plain_records import flat
from speedrunner.store import files, json_records
from speedrunner.store.files import whole_folder
from speedrunner.store.policies import INDEX, LibraryIndex
from speedrunner.store.records import SleepRecord, Trajectory
from speedrunner.store.run_data import RunData

CARRIED = "carried"
"""Folder of the earlier runs in a run's directory."""

Sees = Literal["score", "detail"]
"""The part of an outcome that a learner sees. `score`: score and success. `detail`: the environment's own
figures too, such as ScienceWorld's raw score or Crafter's unlocked achievements."""

FOLDERS = ("trajectories", "policies", "sleeps")
"""Folders of one run in a history."""

Json = dict[str, Any]


def visible_outcome(outcome: Outcome | None, sees: Sees) -> Outcome | None:
    """Return the part of an outcome that a learner sees; `detail` is empty if it sees the score alone."""
    if outcome is None or sees == "detail":
        return outcome
    return Outcome(outcome.score, outcome.success, {})


class Part(NamedTuple):
    """One run's part of a history.

    Attributes:
        run: this run, or an earlier one with a history that this run carries.
        shift: added to the numbers of batches, versions and sleeps; 0 for this run.
        environment: the environment's name, and the options in which the parts differ.
    """

    run: RunData
    shift: int
    environment: str


class History:
    """The part of a run that its method may read (Algorithm 1): training trajectories with their policies,
    past policies (as files), and the records of earlier sleeps. It contains no held-out episode.

    Args:
        sees: what the method may see of outcomes.
        copies: folder of the copies for code, which the caller removes. Later sleeps of one process add to
            it, so it must be new for each process.
    """

    def __init__(self, run: RunData, sees: Sees = "score", copies: Path | None = None) -> None:
        self.sees = sees
        self._copies = copies or files.temporary_name(run.path / "history")
        shift, parts = 0, [(run, 0)]
        for earlier in reversed(carried_runs(run)):
            shift -= len(earlier.policies.versions())  # where the next run started
            parts.insert(0, (earlier, shift))
        environments = _environments([part_run for part_run, _ in parts])
        self.parts = [
            Part(part_run, by, environment)
            for (part_run, by), environment in zip(parts, environments, strict=True)
        ]

    @property
    def earlier(self) -> list[str]:
        """Return the environments of the earlier runs in the history, oldest first."""
        return [part.environment for part in self.parts[:-1]]

    @property
    def environment(self) -> str:
        """Return this run's environment, as `earlier` names the others; empty if there is no earlier run."""
        return self.parts[-1].environment

    def batches(self) -> list[int]:
        """Return the batches played so far, ascending; those of earlier runs are negative."""
        return [batch + part.shift for part in self.parts for batch in part.run.batches()]

    def batch(self, number: int) -> list[Trajectory]:
        """Return the trajectories of one batch, in the order in which its tasks were drawn."""
        part = next(part for part in self.parts if number - part.shift in part.run.batches())
        played = part.run.trajectories(number - part.shift)
        shown = (self._shown(trajectory, part.shift) for trajectory in played)
        return sorted(shown, key=lambda trajectory: trajectory.episode)

    def sleeps(self, before: int, most: int) -> list[SleepRecord]:
        """Return the newest sleeps with a number below `before`, at most `most`, ascending; a repeated sleep
        still has its old record. Those of earlier runs have numbers of 0 or less.
        """
        numbers = [
            (part, number)
            for part in self.parts
            for number in part.run.files.numbers("sleep")
            if number + part.shift < before
        ]
        return [self._shown_sleep(part, number) for part, number in numbers[-most:]]

    def means(self, batch: int) -> tuple[float, float] | None:
        """Return the mean score and LLM calls of a batch's scored episodes; `None` without any."""
        rows = [
            row
            for part in self.parts
            for row in part.run.rows
            if row.phase == "train" and row.policy + part.shift == batch and row.score is not None
        ]
        if not rows:
            return None
        scores = [row.score for row in rows if row.score is not None]
        return sum(scores) / len(rows), sum(row.llm_calls for row in rows) / len(rows)

    def count(self) -> int:
        """Return the number of finished training episodes, without decoding their texts."""
        *earlier, own = self.parts
        played = sum(row.phase == "train" for row in own.run.rows)
        return played + sum(part.run.count("train") for part in earlier)  # they have no rows

    def files(self) -> dict[str, Path]:
        """Return the folders `trajectories`, `policies` and `sleeps`, for code that reads the files.

        They are copies in the run's directory that contain only what the learner may see. Batches, policies
        and records before the running sleep never change, so only the new ones are copied at each sleep.

        Raises `StorageError`: the run cannot be read, or the disk refuses the copies.
        """
        folders = {name: self._copies / name for name in FOLDERS}
        with files.explain_errors(self._copies, "written"):
            for new in (self._copies, *folders.values()):
                files.make_folder(new)
            for part in self.parts:
                self._write(part)
        return folders

    def _shown_sleep(self, part: Part, number: int) -> SleepRecord:
        record = part.run.read_sleep(number)
        episodes = [self._shown(episode, part.shift) for episode in record.episodes]
        return replace(record, sleep=record.sleep + part.shift, episodes=episodes)

    def _shown(self, trajectory: Trajectory, shift: int) -> Trajectory:
        outcome = visible_outcome(trajectory.outcome, self.sees)
        return replace(trajectory, policy=trajectory.policy + shift, outcome=outcome)

    def _write(self, part: Part) -> None:
        """Write what is missing of one run's part, with its numbers in the whole history."""
        run, shift = part.run, part.shift
        versions = run.policies.versions()
        names = {"environment": part.environment} if len(self.parts) > 1 else {}
        for number in run.batches():
            source = run.files.numbered("train", number)
            target = self._copies / f"trajectories/batch_{number + shift:04d}.jsonl"
            if not target.exists():
                lines = [
                    self._show_text(line, part, f"{source}, line {place},", names) + b"\n"
                    for place, _, line in json_records.iterate_lines(source)
                ]
                target.write_bytes(b"".join(lines))
        for version in versions:
            target = self._copies / f"policies/v{version + shift:04d}"
            if not target.exists():
                _copy_policy(run, version, target)
                if shift:
                    index = json_records.read_record(target / INDEX, LibraryIndex)
                    index.version += shift
                    index.skills = tuple(
                        replace(skill, created=skill.created + shift, edited=skill.edited + shift)
                        for skill in index.skills
                    )
                    (target / INDEX).write_bytes(json_records.format_record(index))
        for number in run.files.numbers("sleep"):
            source = run.files.numbered("sleep", number)
            target = self._copies / f"sleeps/{number + shift:04d}.json"
            # A killed attempt at the running sleep may have left a record, which will be replaced.
            if not target.exists() and (shift or number in versions):
                record = json_records.read_json(source)
                episodes = [msgspec.json.encode(episode) for episode in record["attempts"]]
                shown = [self._show_text(episode, part, str(source), names) for episode in episodes]
                record |= {"sleep": number + shift, "attempts": [*map(msgspec.Raw, shown)], **names}
                target.write_bytes(msgspec.json.encode(record))

    def _show_text(self, line: bytes, part: Part, where: str, names: Json) -> bytes:
        """Return the JSON of an episode as the learner may see it; an outcome has no detail if it sees the
        score alone. Other fields are copied undecoded.
        """
        try:
            fields: Json = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            fields["policy"] = int(fields["policy"]) + part.shift
            outcome = msgspec.json.decode(fields["outcome"], type=Outcome | None)
        except (msgspec.DecodeError, KeyError, ValueError) as error:
            raise files.StorageError(f"{where} is not a valid episode: {error}") from error
        if outcome is not None and self.sees == "score":
            fields["outcome"] = {"score": outcome.score, "success": outcome.success}
        return msgspec.json.encode(fields | names)


def _environments(runs: list[RunData]) -> list[str]:
    """Return each run's environment: its name, and the options in which the runs differ."""
    if len(runs) == 1:
        return [""]  # a history of one run names none
    options = [flat(run.config.get("env", {})) for run in runs]
    differing = [
        key
        for key in dict.fromkeys(key for own in options for key in own)
        if key != "name" and len({repr(own.get(key)) for own in options}) > 1
    ]
    return [
        " ".join([str(own.get("name", "")), *(f"{key}={own[key]}" for key in differing if key in own)])
        for own in options
    ]


def carried_runs(run: RunData) -> list[RunData]:
    """Return the earlier runs in the history that a run carries, oldest first. Raises `StorageError`."""
    folder = run.path / CARRIED
    if not folder.is_dir():
        return []
    with files.explain_errors(folder, "read"):
        return [RunData(path) for path in sorted(folder.iterdir()) if path.name.isdecimal()]


def carried_files(path: Path) -> list[Path]:
    """Return the files of the earlier runs that the run at `path` carries, sorted."""
    return sorted(file for file in (path / CARRIED).rglob("*") if file.is_file())


def copy_history(run: RunData, version: int, target: Path) -> None:
    """Copy what led to a policy version of a run: its training history, and that of its earlier runs.

    Args:
        target: the folder `carried` of the run that starts from this version; missing or empty.

    Raises `StorageError`: the run cannot be read, or the disk refuses the copies.
    """
    earlier = [(source, len(source.policies.versions())) for source in carried_runs(run)]
    parts = [(source, end) for source, end in (*earlier, (run, version)) if end]
    with whole_folder(target) as hidden:
        for number, (source, end) in enumerate(parts):
            _copy(source, end, hidden / f"{number:04d}")


def _copy_policy(run: RunData, version: int, target: Path) -> None:
    files.make_folder(target)
    for source in (run.policies.folder / f"v{version:04d}").iterdir():
        _copy_file(source, target / source.name)


def _copy_file(source: Path, target: Path) -> None:
    target.touch(files.FILE_MODE)
    shutil.copyfile(source, target)


def _copy(run: RunData, version: int, target: Path) -> None:
    """Copy the configuration, and the batches, policies and sleeps before a policy version, as they are."""
    for folder in (target, *(target / name for name in FOLDERS)):
        files.make_folder(folder)
    batches = [run.files.numbered("train", batch) for batch in run.batches() if batch < version]
    sleeps = [run.files.numbered("sleep", sleep) for sleep in run.files.numbers("sleep") if sleep <= version]
    for source in (run.files.config, *batches, *sleeps):
        _copy_file(source, target / source.relative_to(run.path))
    for number in (stored for stored in run.policies.versions() if stored < version):
        _copy_policy(run, number, target / f"policies/v{number:04d}")
