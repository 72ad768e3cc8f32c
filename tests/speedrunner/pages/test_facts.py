"""What was run: said of summaries alone, as a run may be gone by then."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from serving.model_configs import load_model_config
from speedrunner.pages.facts import facts
from speedrunner.store.records import Machine
from tests.speedrunner.results.summaries import summary
from tests.speedrunner.run_samples import process

MACHINE = Machine("A processor", 8, 33.7, ["H100, 81559 MiB"] * 2)


def test_hardware_of_a_process() -> None:
    played = msgspec.structs.replace(process(load_model_config("tiny-random")), machine=MACHINE)
    values = [each.value for each in facts([replace(summary(), processes=[played])]).shared]
    assert "here: A processor, 8 cores, 34 GB; 2 x H100, 81559 MiB" in values
