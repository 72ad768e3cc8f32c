"""A run whose method loads programs and acts itself in mid-episode."""

from __future__ import annotations

import pytest

from tests.scripted_runs import Runs, ScriptedRun
from tests.speedrunner.methods.test_every_method import RACETRACK, school


@pytest.fixture(scope="session")
def programmed(shared_corridor: Runs) -> ScriptedRun:
    """A finished run of Voyager."""
    return shared_corridor(school, RACETRACK, "method=voyager", "run.rollouts=2").finish()
