"""The bundled environments still play as their certificates say."""

from __future__ import annotations

from contextlib import closing

import pytest

from envs import make
from envs.random_play import trace_hash
from speedrunner.store.json_records import read_record
from speedrunner.verification.certificate import BUNDLED, Certificate

FAST = ("babyai",)
CERTIFICATES = {path.stem: path for path in sorted(BUNDLED.glob("*.json"))}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in FAST else pytest.mark.slow) for each in CERTIFICATES],
)
def test_an_environment_has_the_hashes_of_its_certificate(name: str) -> None:
    known = read_record(CERTIFICATES[name], Certificate)
    with closing(make(known.env, **known.options)) as env:
        for seed, play in enumerate(known.plays):
            assert trace_hash(env, play.task, calls=known.calls, seed=seed) == play.hash
