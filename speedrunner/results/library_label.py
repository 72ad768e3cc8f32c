"""A measured label of a stored library: what it was made with, and what its test episodes show.

Means, differences and intervals are those of `speedrunner.results.paired`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from speedrunner.results.conditions import RunGroup, Side
from speedrunner.results.evaluated_run import EvaluatedRun, frame_run
from speedrunner.results.inference import Estimate
from speedrunner.results.paired import METRICS, estimate_difference
from speedrunner.store.checksums import find_changed, without_checksum
from speedrunner.store.json_records import own_digest
from speedrunner.store.process_notes import caveats
from speedrunner.store.records import Policy
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError

SUCCESS = "success"
"""Whether the task was completed."""

MEASURES = {SUCCESS: SUCCESS, **METRICS}
"""Values per test episode in a label, and their columns; tokens are those of the episode's own requests."""

SHARES = (SUCCESS, "score")
"""Measures between 0 and 1. All others have savings."""


class Evaluation(msgspec.Struct, frozen=True):
    """The test episodes of one policy at one checkpoint.

    Attributes:
        policy: the policy's version.
        checkpoint: training rollouts before it.
        episodes: number of test episodes; the means leave out those that an infrastructure error ended.
        means: by `MEASURES`, the mean over tasks with its interval; a measure without a value is missing.
    """

    policy: int
    checkpoint: int
    episodes: int
    means: dict[str, Estimate]


class LibraryLabel(msgspec.Struct, frozen=True, kw_only=True):
    """A library's origin and its measured results.

    Intervals are 95% percentile bootstrap intervals over test tasks. They apply to this library alone.

    Attributes:
        run, version: name of the run's folder, and the policy's version.
        run_sha256: `digest` of the run's `state.json`, which contains the checksums of all its records.
        public, skills: number of public skills and of all skills.
        env, env_options: name and options of the environment.
        env_digests: digests of its description, primitives, tools, limits and tasks, as the run recorded
            them.
        certificate: digest of a determinism certificate of the environment; `None`: none was given.
        versions: of Python, packages and this code, as the run recorded them.
        method: name of the method that learned the library.
        model, inducer: model configs of the actor and of the author of the skills.
        model_files: by model, digests of the files of its local folder.
        seed: seed of the run.
        with_library: the last finished evaluation of this version; `None`: not measured.
        without: the first finished evaluation of the same run by a policy without skills, usually before the
            first sleep; `None`: not measured.
        saved: for each of `MEASURES` except `SHARES`, the mean difference per test episode, paired by task:
            without minus with.
        licence: the terms of the skills' text.
        caveats: notes on the models, and on records without a checksum.
    """

    run: str
    version: int
    run_sha256: str
    public: int
    skills: int
    env: str
    env_options: dict[str, Any]
    env_digests: dict[str, str]
    certificate: str | None
    versions: dict[str, str]
    method: str
    model: str
    inducer: str
    model_files: dict[str, dict[str, str]]
    seed: int
    with_library: Evaluation | None
    without: Evaluation | None
    saved: dict[str, Estimate]
    licence: str
    caveats: list[str]
    format: int = 1


def label_library(
    run: RunData, policy: Policy, licence: str | None = None, certificate: str | None = None
) -> LibraryLabel:
    """Return the label of one of a run's policies.

    Args:
        licence: the terms of the skills' text; `None`: those of the model that wrote them.
        certificate: digest of a determinism certificate.

    Raises:
        RunDirectoryError: the run records no process, or does not match its checksums.
        StorageError, InvalidConfig: the run cannot be read.
    """
    _require_unchanged(run)
    if not run.processes:
        raise RunDirectoryError(f"{run.path} has no record of the process that played it")
    process, config = run.processes[-1], run.settings
    evaluated = frame_run(run)
    side = RunGroup(evaluated.condition_name, {config.run.seed: evaluated}, run.path.name)
    points = _finished_points(evaluated)
    own = max((point for point, version in points.items() if version == policy.version), default=None)
    empty = min(
        (point for point, version in points.items() if not run.policies.load(version).skills), default=None
    )
    saved = {}
    if own is not None and empty is not None:
        amounts = {name: column for name, column in MEASURES.items() if name not in SHARES}
        found = {
            name: estimate_difference(side, side, (own, empty), column) for name, column in amounts.items()
        }
        saved = {name: each for name, each in found.items() if each is not None}
    return LibraryLabel(
        run=run.path.resolve().name,
        version=policy.version,
        run_sha256=run.state.digest,
        public=sum(skill.public for skill in policy.skills),
        skills=len(policy.skills),
        env=config.env.name,
        env_options=config.env.options,
        env_digests=process.env,
        certificate=certificate,
        versions=process.versions,
        method=config.method.name,
        model=process.actor.name,
        inducer=process.inducer.name,
        model_files=process.models,
        seed=config.run.seed,
        with_library=None if own is None else _evaluation(side, own, policy.version),
        without=None if empty is None else _evaluation(side, empty, points[empty]),
        saved=saved,
        licence=licence or f"Written by the model {process.inducer.name}, under the terms of this model",
        caveats=[*caveats(run.processes), *_note_unchecked(run)],
    )


def _require_unchanged(run: RunData) -> None:
    """Raise `RunDirectoryError` if the run's files differ from their checksums."""
    state = run.state
    where, what = "state.json", "does not match its own checksum"
    if state.digest == own_digest(state):
        where, what = next(find_changed(run.path, state.checksums), ("", ""))
    if where:
        raise RunDirectoryError(
            f"{run.path}: {where} {what}, so nothing is labelled: `speedrunner verify {run.path}` lists all"
            " differences"
        )


def _note_unchecked(run: RunData) -> Iterator[str]:
    """Yield a line about records without a checksum, which a killed or running process has appended."""
    if rest := without_checksum(run.path, run.state.checksums):
        yield f"{sum(rest.values())} bytes of {', '.join(rest)} have no checksum"


def _finished_points(evaluated: EvaluatedRun) -> dict[int, int]:
    """Return the version of the policy that played each finished checkpoint."""
    tests = evaluated.episodes[evaluated.episodes["phase"] == "test"]
    versions = tests.groupby("checkpoint")["policy"].unique()
    return {point: int(versions[point][0]) for point in evaluated.points if len(versions[point]) == 1}


def _evaluation(side: Side, point: int, version: int) -> Evaluation:
    found = {name: side.estimate(point, column) for name, column in MEASURES.items()}
    means = {name: each for name, each in found.items() if each is not None}
    played = side.first.episodes
    episodes = int(((played["phase"] == "test") & (played["checkpoint"] == point)).sum())
    return Evaluation(version, point, episodes, means)
