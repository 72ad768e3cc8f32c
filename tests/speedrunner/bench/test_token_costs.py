"""What tokens cost: the fit on made-up units, and the whole command on an engine whose CPU time is known."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace

import psutil
import pytest
from msgspec.structs import replace

from serving.engine.gpus import Gpu, GpuReading, GpuReport
from speedrunner.bench import token_costs, token_units
from speedrunner.bench.token_costs import Fit, fit_costs, usable_levels
from speedrunner.bench.token_units import EMPTY, Kind, TokenUnit
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.plain_yaml import read_yaml_file
from speedrunner.results.ledger import run_costs
from speedrunner.results.pricing import price_book
from tests.scripted_engine import Answer, Request, say
from tests.scripted_runs import Runs, ScriptedRun, complaint, in_process

CONTEXTS = (512, 2048, 8192)
COSTS = {"uncached": 40.0, "cached": 1.5, "output": 300.0, "attention": 20.0, "requests": 3000.0}
"""Seconds of a million."""


def unit(context: int, kind: Kind, noise: float = 1.0) -> TokenUnit:
    amounts = {"uncached": context if kind == "uncached" else 16, "output": 64 if kind == "output" else 1}
    amounts |= {"cached": context - amounts["uncached"], "requests": 1}
    attention = amounts["output"] * (context + amounts["output"] / 2) / 1000
    seconds = sum(COSTS[name] * amount for name, amount in (amounts | {"attention": attention}).items())
    seconds *= noise / 1e6
    return TokenUnit(context, 8, kind, seconds=seconds, joules=None, disturbed="", **amounts)


def units(noise: float, seed: int, repeats: int = 5) -> list[TokenUnit]:
    """Repeats of each kind, with noise of this relative size."""
    rng = Random(seed)
    kinds: list[tuple[int, Kind]] = [(EMPTY, "uncached")]
    kinds += [(context, kind) for context in CONTEXTS for kind in ("uncached", "cached", "output")]
    return [unit(*each, noise=rng.gauss(1, noise)) for each in kinds for _ in range(repeats)]


def costs_of(found: Fit) -> dict[str, float]:
    return {name: getattr(found.costs, name).value for name in COSTS}


def width(found: Fit) -> float:
    return found.costs.uncached.high - found.costs.uncached.low


def test_the_fit_finds_the_costs_that_made_the_units() -> None:
    found = fit_costs(units(0.0, 0))
    assert costs_of(found) == pytest.approx(COSTS, rel=1e-4)
    assert found.ratio.value == pytest.approx(1.5 / 40, rel=1e-4)


def test_its_intervals_have_the_truth_about_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_costs, "RESAMPLES", 1000)
    fits = [fit_costs(units(0.05, seed)) for seed in range(100)]
    for name, cost in COSTS.items():
        ranges = [getattr(each.costs, name) for each in fits]
        assert sum(each.low <= cost <= each.high for each in ranges) >= 88, name
    assert sum(each.ratio.low <= 1.5 / 40 <= each.ratio.high for each in fits) >= 88


def test_a_cost_that_grows_with_the_context_widens_the_intervals() -> None:
    def bent(repeats: int) -> Fit:
        made = units(0.01, 1, repeats)
        return fit_costs([each if each.context < 8192 else unit(8192, each.kind, 1.3) for each in made])

    found = bent(5)
    assert width(found) > 3 * width(fit_costs(units(0.01, 1)))
    assert width(bent(50)) > 0.8 * width(found)  # the lack of fit is the same in every repeat


@pytest.mark.parametrize("kinds", [("uncached", "cached"), ("uncached", "output"), ("uncached",)])
def test_without_units_that_show_each_cost_none_is_given(kinds: tuple[Kind, ...]) -> None:
    few = [each for each in units(0.01, 0) if each.kind in kinds and each.context in (EMPTY, 512)]
    with pytest.raises(InvalidConfig, match="do not show the cost of each kind"):
        fit_costs(few)


def test_a_price_list_has_each_level_with_its_contexts() -> None:
    low = [replace(each, in_flight=1) for each in units(0.0, 0)]
    high = [replace(each, in_flight=64) for each in units(0.0, 0) if each.context < 8192]
    found = usable_levels([*low, *units(0.0, 0), *high])
    assert [*found] == [1, 8, 64]
    assert {each.context for each in found[64]} == {EMPTY, 512, 2048}
    disturbed = [replace(each, disturbed="others") for each in units(0.0, 0)]
    assert [*usable_levels([*low, *disturbed])] == [1]
    with pytest.raises(InvalidConfig, match=r"disturbed by others\): rerun"):
        usable_levels(disturbed)


@pytest.fixture
def measurable(corridor: Runs, monkeypatch: pytest.MonkeyPatch) -> ScriptedRun:
    """A scripted engine with CPU and wall time by the tokens that it counted, and short units."""

    def answer(request: Request) -> Answer:
        return say("word " * 80)

    run = corridor(answer)
    engine = run.server

    def used(processes: object) -> dict[str, float]:
        tokens = {"uncached": engine.prompt - engine.cached, "cached": engine.cached}
        tokens["output"] = engine.generated
        return {"EngineCore": sum(COSTS[name] * tokens[name] for name in tokens) / 1e6}

    monkeypatch.setattr(token_units, "cpu_seconds", used)
    clock = SimpleNamespace(monotonic=lambda: used(None)["EngineCore"])
    monkeypatch.setattr(token_units, "time", clock)
    monkeypatch.setattr(token_units, "server_processes", lambda endpoint: [psutil.Process()])
    monkeypatch.setattr(token_units, "UNIT_S", 0.001)
    return run


def bench(run: ScriptedRun, out: Path, *more: str, rate: float = 3.6) -> list[str]:
    small = ("--contexts", "64,256,99999", "--in-flight", "1,4", "--repeats", "2", *more)
    return ["bench", "tokens", *run.overrides(), f"--usd-per-gpu-hour={rate}", f"--out={out}", *small]


@pytest.mark.process
def test_the_command_writes_a_price_list_that_prices_a_run(
    measurable: ScriptedRun, learnt: ScriptedRun, tmp_path: Path
) -> None:
    out = tmp_path / "record"
    done = in_process(*bench(measurable, out))
    assert done.returncode == 0, done.stderr
    assert "Longer prompts than" in done.stdout
    assert "Joules: not measured, this machine has no NVIDIA driver" in done.stdout
    file = out / "measured-tiny-random.yaml"
    written = read_yaml_file(file)
    measured = written["measured"]
    assert [level["in_flight"] for level in measured["levels"]] == [1, 4]
    for name in ("uncached", "cached", "output"):
        assert measured["levels"][-1]["seconds"][name]["value"] == pytest.approx(COSTS[name], rel=1e-3)
    assert (measured["unit"], measured["usd_per_hour"]) == ("CPU", 3.6)
    total = run_costs(learnt.data, price_book(learnt.data, str(file))).total
    usd = (
        40 * total.tokens.computed
        + 1.5 * total.tokens.cached
        + 300 * (total.tokens.reasoning + total.tokens.action)
    )
    assert total.usd == pytest.approx(usd / 1e9, rel=1e-3)
    shown = in_process("cost", str(learnt.dir), "--prices", str(file)).stdout
    assert "prices: measured-tiny-random (CPU seconds of tiny-random on " in shown


@pytest.mark.process
def test_units_that_others_disturbed_are_left_out_and_short_prompts_refused(
    measurable: ScriptedRun, tmp_path: Path
) -> None:
    out, script, engine = tmp_path / "prices", measurable.server.script, measurable.server

    def disturbed(request: Request) -> Answer:
        if len(engine.requests) == 30:
            engine.generated += 1  # as by a request of another client
        assert callable(script)
        return script(request)

    engine.script = disturbed
    done = in_process(*bench(measurable, out))
    assert (
        "1 units are left out (other requests, or retries: the engine counted other tokens)." in done.stdout
    )
    assert "keeps multiples of 32 tokens" in complaint(
        in_process(*bench(measurable, out), "--contexts=32,64")
    )


@pytest.mark.process
def test_a_server_whose_processes_cannot_be_found_is_refused(
    measurable: ScriptedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_units, "server_processes", lambda endpoint: [])
    assert "cannot be found" in complaint(in_process(*bench(measurable, tmp_path / "record")))


@pytest.mark.process
def test_joules_of_the_server_s_gpu_are_fitted(
    measurable: ScriptedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, own = measurable.server, psutil.Process().pid

    class Driver:
        def __init__(self, failure: str) -> None:
            self.failure = failure

        def read(self, uuid: str) -> GpuReading:
            energy = 0.04 * (engine.prompt - engine.cached) + 0.001 * engine.cached + 2 * engine.generated
            return GpuReading(joules=energy, pids=frozenset({own if uuid == "GPU-used" else 1}))

    gpus = [Gpu(str(n), uuid, "A GPU", 1, 1, "") for n, uuid in enumerate(("GPU-other", "GPU-used"))]
    monkeypatch.setattr(token_units, "Nvml", Driver)
    monkeypatch.setattr(token_units, "read_gpus", lambda: GpuReport(installed=gpus))
    measurable.model_config = replace(measurable.model_config, gpus=1)
    done = in_process(*bench(measurable, tmp_path / "record"))
    assert done.returncode == 0, done.stderr
    assert "Joules of a million" in done.stdout
    measured = read_yaml_file(tmp_path / "record/measured-tiny-random.yaml")["measured"]
    top = measured["levels"][-1]
    assert (measured["unit"], top["seconds"]["output"]["value"]) == ("GPU", pytest.approx(300, rel=1e-3))
    joules = {name: each["value"] for name, each in top["joules"].items()}
    assert joules == pytest.approx(
        {"uncached": 4e4, "cached": 1e3, "output": 2e6, "attention": 0, "requests": 0}, rel=1e-3, abs=1
    )
