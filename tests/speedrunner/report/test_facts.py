"""What was run: said of summaries alone, as a run may be gone by then."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from serving.model_configs import load_model_config
from speedrunner.report.facts import facts
from speedrunner.store.records import Machine, Process
from tests.speedrunner.results.summaries import summary
from tests.speedrunner.run_samples import process

MACHINE = Machine("A processor", 8, 33.7, ["H100, 81559 MiB"] * 2)


def played_with(machine: Machine | None) -> Process:
    return msgspec.structs.replace(process(load_model_config("tiny-random")), machine=machine)


@pytest.mark.parametrize(
    ("machine", "said"),
    [(MACHINE, "here: A processor, 8 cores, 34 GB; 2 x H100, 81559 MiB"), (None, "here: not recorded")],
)
def test_hardware_of_a_process(machine: Machine | None, said: str) -> None:
    run = replace(summary(), processes=[played_with(machine)])
    assert said in [each.value for each in facts([run]).shared]


def test_processes_that_recorded_no_machine_are_read() -> None:
    content = msgspec.to_builtins(played_with(MACHINE))
    del content["machine"]
    assert msgspec.convert(content, Process) == played_with(None)
