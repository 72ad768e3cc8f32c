from __future__ import annotations

import pytest

from serving.meter import LedgerRow
from speedrunner.store.files import StorageError
from speedrunner.store.labels import attempts
from speedrunner.store.stored_run import sleep_key
from tests.speedrunner.run_samples import request


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


@pytest.mark.parametrize("attempt", ["x", "9" * 5000, None])
def test_an_attempt_that_is_no_number_is_named(attempt):
    row = request()
    row.labels.pop("attempt")
    row.labels.update({"attempt": attempt} if attempt else {})
    with pytest.raises(StorageError, match=r"the ledger has a row of 'train/0000' with no attempt"):
        attempts([row])
