"""What was run: by what, where, and how it ended."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from speedrunner.runs.identity import process_lines
from speedrunner.statistics.summary import Summary
from speedrunner.store.data import load


class RunFacts(msgspec.Struct, frozen=True):
    """One run.

    Attributes:
        versions: of its newest process.
        hosts: where its processes were.
        sandbox: how what models wrote was confined.
        endings: of all its episodes.
        notes: what else has to be known of it.
    """

    path: str
    env: str
    method: str
    model: str
    seed: int
    began: str
    checkpoints: list[int]
    unfinished: list[int]
    versions: dict[str, str]
    hosts: list[str]
    sandbox: str
    endings: dict[str, int]
    notes: list[str]


def run_facts(run: Summary) -> RunFacts:
    """Of a run that was read. Raises `StorageError`."""
    processes = load(run.path).processes
    endings: Counter[str] = Counter()
    for (_, _, ending), count in run.endings.items():
        endings[ending] += count
    return RunFacts(
        path=run.path,
        env=run.setting.env,
        method=run.setting.method,
        model=run.setting.model,
        seed=run.seed,
        began="" if run.began is None else f"{datetime.fromtimestamp(run.began):%Y-%m-%d %H:%M}",
        checkpoints=sorted(run.checkpoints),
        unfinished=run.unfinished,
        versions=processes[-1].versions if processes else {},
        hosts=list(dict.fromkeys(process.host for process in processes)),
        sandbox=run.config.sandbox.kind,
        endings=dict(endings.most_common()),
        notes=process_lines(processes),
    )
