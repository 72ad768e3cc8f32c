from __future__ import annotations

from serving.meter import LedgerRow
from speedrunner.store.labels import attempts
from speedrunner.store.stored_run import sleep_key


def test_the_highest_attempt_of_an_episode_is_known_from_the_ledger():
    labels = (
        {"episode": "train/0000", "attempt": "1"},
        {"episode": "train/0000", "attempt": "2"},
        {"episode": "train/0000", "attempt": "1"},
        {"episode": sleep_key(1), "attempt": "10"},
        {"role": "readiness"},
    )
    rows = [
        LedgerRow(
            request="r", retry=0, time=0.0, labels=each, model="m", status="ok", wasted=False, usage=None,
            seconds=0.0,
        )
        for each in labels
    ]  # fmt: skip
    assert attempts(rows) == {"train/0000": 2, "sleep/0001": 10}
