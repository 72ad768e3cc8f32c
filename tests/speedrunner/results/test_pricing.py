"""Price lists by name, put on a run."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import yaml
from msgspec.structs import astuple

from serving.meter import LedgerRow
from serving.model_config import ModelConfig
from serving.usage import Prices, Usage
from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig, to_yaml
from speedrunner.results.cost_text import cost_lines
from speedrunner.results.ledger import run_costs
from speedrunner.results.means import frame_checkpoints
from speedrunner.results.pricing import (
    CacheRule,
    Load,
    PriceBook,
    price_book,
    price_caveats,
    price_list,
)
from speedrunner.results.writing import list_rows
from speedrunner.store.records import Policy, PrefixChange
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.results.ledgers import measured_list, play, row
from tests.speedrunner.results.test_means import CONFIG, learn
from tests.speedrunner.run_samples import process


def write_run(folder: Path, model_config: ModelConfig) -> RunData:
    with RunDirectory.open_for_writing(folder / "run") as directory:
        directory.write_config("run: {}\n")
        directory.append_process(process(model_config))
        directory.write_policy(Policy(version=0))
        directory.append_request(
            LedgerRow(
                request="r",
                retry=0,
                time=1.0,
                labels={"role": "actor"},
                model=model_config.name,
                status="ok",
                wasted=False,
                usage=Usage(1, 0, 1),
                seconds=1.0,
            )
        )
    return load(folder / "run")


def test_another_list_holds_for_every_model(tiny_model_config: ModelConfig, tmp_path: Path) -> None:
    data = write_run(tmp_path, tiny_model_config)
    book = price_book(data, "gemini-3-flash-preview")
    assert book.prices == Prices(uncached=0.35, cached=0.0875, output=1.05)
    assert price_book(data, "zero").prices == Prices(0, 0, 0)


def test_an_unknown_list_is_one_line(tiny_model_config: ModelConfig, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"prices=gpt-5.4-mni is unknown \(did you mean gpt-5.4-mini"):
        price_book(write_run(tmp_path, tiny_model_config), "gpt-5.4-mni")


def test_a_measured_list_has_its_hardware_in_its_title_(
    tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    data = write_run(tmp_path, tiny_model_config)
    book = price_book(data, str(measured_list(tmp_path)))
    assert astuple(book.prices) == pytest.approx((0.2, 0.01, 2.0, 4.0, 0.5))
    about = "measured-here (CPU seconds of tiny-random on a processor with no engine, 1 in flight, "
    assert book.title.startswith(about)
    assert price_caveats(book, data.processes) == []


def test_a_measured_list_prices_each_request_besides_its_tokens(
    tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    data = write_run(tmp_path, tiny_model_config)  # a request of one uncached and one output token
    costs = run_costs(data, price_book(data, str(measured_list(tmp_path))))
    assert costs.total.usd == pytest.approx((0.2 + 2.0 + 4.0 + 0.5 * 1.5 / 1000) / 1e6)
    row = next(line for line in cost_lines(costs) if line.startswith("USD"))
    assert row.split() == ["USD", "0.000004", "0.000000", "0.000000", "0.000000", "0.000002", "0.000006"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hardware": "NVIDIA H200"}, "a processor, not NVIDIA H200"),
        ({"model": "tiny-hybrid"}, "tiny-random, not tiny-hybrid"),
        ({"engine": "vllm 0.33.0"}, "no engine, not vllm 0.33.0"),
    ],
)
def test_a_list_that_was_measured_elsewhere_is_told(
    tiny_model_config: ModelConfig, tmp_path: Path, changes: dict[str, str], told: str
) -> None:
    data = write_run(tmp_path, tiny_model_config)
    (caveat,) = price_caveats(price_book(data, str(measured_list(tmp_path, **changes))), data.processes)
    assert caveat.endswith(f"measured elsewhere (measured-here): played with {told}")


def test_the_level_nearest_to_the_run_s_mean_in_flight_prices_it(
    tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    data, file = write_run(tmp_path, tiny_model_config), str(measured_list(tmp_path))
    assert price_book(data, file).load == Load(in_flight=1.0, longest=1)
    with RunDirectory.open_for_writing(data.path) as directory:
        for number in range(30):  # three seconds, with ten requests in each
            usage = Usage(3000 + number, 0, 1)
            directory.append_request(row(5.0 + number % 3, usage, model=tiny_model_config.name))
    data = load(data.path)
    book = price_book(data, file)
    assert (book.prices.output, book.load and book.load.longest) == (1.0, 3029)
    (caveat,) = price_caveats(book, data.processes)
    assert caveat.endswith("range of measured-here: prompts of up to 3029 tokens (measured up to 2048)")


def test_a_request_that_was_never_sent_costs_nothing() -> None:
    prices = Prices(uncached=1.0, cached=0.1, output=10.0, requests=4.0, attention=0.5)
    assert prices.cost(Usage()) == 0
    assert prices.cost(Usage(2000, 0, 10)) == pytest.approx((2000 + 100 + 4 + 0.5 * 10 * 2.005) / 1e6)


def test_a_run_that_was_played_at_a_measured_list_keeps_its_intervals(
    tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    own = price_list(str(measured_list(tmp_path))).whole
    with RunDirectory.open_for_writing(tmp_path / "run") as directory:
        directory.write_config(to_yaml(compose([f"prices={tmp_path / 'measured-here.yaml'}"])))
        directory.append_process(process(tiny_model_config, **{"tiny-random": own}))
    book = price_book(load(tmp_path / "run"))
    assert (book.prices, book.measured is not None) == (own, True)


def test_a_list_that_is_damaged_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"prices\.measured\.usd_per_hour must be .*more than 0"):
        price_list(str(measured_list(tmp_path, usd_per_hour=0.0)))
    (tmp_path / "part.yaml").write_text("uncached: 1\n")
    with pytest.raises(InvalidConfig, match=r"part\.yaml: a price list has uncached, cached and output"):
        price_list(str(tmp_path / "part.yaml"))
    (tmp_path / "twice.yaml").write_text("uncached: 1\nuncached: 2\n")
    with pytest.raises(InvalidConfig, match="`uncached` is set twice"):
        price_list(str(tmp_path / "twice.yaml"))
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(InvalidConfig, match="it is a folder, a pipe or a device"):
        price_list(str(tmp_path / "pipe.yaml"))
    with pytest.raises(InvalidConfig, match=r"nothing\.yaml cannot be read"):
        price_list(str(tmp_path / "nothing.yaml"))


UNCACHED, CACHED, OUTPUT = 1.0, 0.1, 10.0
MINIMUM, STEP = 100, 16
RULES = {
    "engine": CacheRule(),
    "cold": CacheRule("cold"),
    "provider": CacheRule("provider", MINIMUM, STEP),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three policies, two prefixes with warm-ups on two replicas, on one twice; conversations of several
    turns. The second sleep keeps the prefix; the only episodes of its policy follow no warm-up."""
    with RunDirectory.open_for_writing(tmp_path_factory.mktemp("priced") / "run") as run:
        run.write_config(yaml.safe_dump(CONFIG))
        for version, point in ((0, 0), (1, 2), (2, 4)):
            run.write_policy(Policy(version=version))
            for replica in ("0", "1", "1") if version < 2 else ():
                labels = {"phase": "test", "policy": str(version), "replica": replica}
                run.append_request(row(1.0, Usage(300 + point, 40, 1), "prefix_warm_up", **labels))
            for number in range(3):
                turns = Usage(350 + number, 300, 20, 5), Usage(420, 360 + number, 9), Usage(500, 90, 7)
                play(run, f"test/{point:04d}/{number:04d}", *turns, policy=version)
        for number in range(4):
            play(run, f"train/{number:04d}", Usage(340, 310, 30), Usage(400, 371, 8), policy=number // 2)
        for number, prefix in ((1, PrefixChange(300, 300, 290)), (2, PrefixChange(300, 300, 300))):
            learn(run, number, 2, Usage(2000, 160, 400), Usage(2600, 2400, 100), prefix=prefix)
    return run.path


def recompute(run: Path, rule: str, batch: int) -> tuple[dict[int, float], float, float]:
    """Return the cost of a test episode by checkpoint, that of the run and of probes, without our code."""
    usd: dict[str, float] = defaultdict(float)
    longest: dict[tuple[str, str], int] = {}
    for line in (run / "requests.jsonl").read_text().splitlines():
        request = json.loads(line)
        labels, usage = request["labels"], request["usage"]
        cached, key = usage.get("cached", 0), labels.get("episode")
        if rule == "cold":
            before = longest.get((key, labels["role"]), 0) if key else 0
            cached = min(cached, before)
            longest[key, labels["role"]] = usage["prompt"] + usage["completion"]
        if rule == "provider":
            cached = cached - cached % STEP if cached >= MINIMUM else 0
        paid = UNCACHED * (usage["prompt"] - cached) + CACHED * cached + OUTPUT * usage["completion"]
        usd[key or f"warm-ups of {labels.get('policy', 'none')}"] += paid / 1e6
    changed, newest = {0: 0}, 0
    for file in sorted((run / "sleeps").glob("*.json")):
        sleep = json.loads(file.read_text())
        before, after, common = (sleep["prefix"][name] for name in ("before", "after", "common"))
        newest = newest if before == after == common else sleep["sleep"]
        changed[sleep["sleep"]] = newest
    episodes = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    served = Counter(changed[each["policy"]] for each in episodes)
    warm_ups: dict[int, float] = defaultdict(float)
    for policy, newest in changed.items():
        warm_ups[newest] += usd[f"warm-ups of {policy}"]
    costs: dict[int, float] = defaultdict(float)
    tests = [(each["episode"].split("/"), each) for each in episodes if each["episode"].startswith("test")]
    size = Counter(int(point) for (_, point, _), _ in tests)
    for (_, point, _), each in tests:
        policy = each["policy"]
        share = warm_ups[changed[policy]] / served[changed[policy]] + usd[f"sleep/{policy:04d}"] / batch
        costs[int(point)] += (usd[each["episode"]] + share) / size[int(point)]
    return costs, sum(usd.values()), usd["warm-ups of none"]


def require_costs(run: Path, rule: str, batch: int) -> None:
    """Compare the costs of a run with those recomputed; a sleep follows each batch of so many rollouts."""
    data = load(run)
    prices = Prices(UNCACHED, CACHED, OUTPUT)
    costs = run_costs(data, PriceBook("a list", prices, rule=RULES[rule]))
    rows = list_rows(frame_checkpoints(data, costs))
    by_point, total, probes = recompute(run, rule, batch)
    assert (total > recompute(run, "engine", batch)[1]) == (rule != "engine")
    assert {row["checkpoint"]: row["cost_usd"] for row in rows} == pytest.approx(by_point)
    assert costs.total.usd == pytest.approx(total)
    tests = sum(row["actor_usd"] * row["episodes"] for row in rows)
    # Warm-ups are in the episodes, once; probes of the engine are in none.
    assert tests + rows[-1]["training_usd"] == pytest.approx(total - probes)


@pytest.mark.parametrize("rule", RULES)
def test_costs_are_those_of_the_ledger_and_each_request_is_paid_once(run: Path, rule: str) -> None:
    require_costs(run, rule, batch=2)


def test_the_rule_of_a_provider_is_that_of_the_list_or_else_of_openai(
    tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    data = write_run(tmp_path, tiny_model_config)
    gemini, zero = (price_book(data, name, "provider").rule for name in ("gemini-3-flash-preview", "zero"))
    assert gemini == CacheRule("provider", 1024, 1)
    assert zero == CacheRule("provider", 1024, 128)
