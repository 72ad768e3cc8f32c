"""What docs/deviations.csv says about this program is so: each row names the test that checks it."""

from __future__ import annotations

import csv
import random
import re
from functools import cache
from importlib.metadata import version
from types import SimpleNamespace

import pandas
import pytest

import envs
from envs import babyai, crafter, scienceworld
from serving.apis.chat_completions import ChatConversation
from serving.meter import LedgerRow
from serving.model_configs import CHECKOUT, load_model_config
from serving.usage import Prices, Usage
from speedrunner.config.compose import compose
from speedrunner.config.grid import grid_of
from speedrunner.config.names import run_name
from speedrunner.config.schema import Config
from speedrunner.library import rules
from speedrunner.library.definition import read_text
from speedrunner.library.library import Library
from speedrunner.methods import ace, asi, method_base
from speedrunner.methods.method_registry import METHODS, make
from speedrunner.methods.speedrunner import inducer, interpreter, speedrunner_method
from speedrunner.methods.voyager import rollout
from speedrunner.results import libraries, means, paper
from speedrunner.results.claims import Claim, list_claims
from speedrunner.results.means import RULES
from speedrunner.results.pricing import CacheRule
from speedrunner.results.run_result import RunResult
from speedrunner.runs.plan import Step, plan_run
from speedrunner.store.records import Policy
from speedrunner.workers import call_tree

with (CHECKOUT / "docs/deviations.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))

GPT, QWEN = load_model_config("gpt-5.4-mini"), load_model_config("qwen3.5-27b")
BABYAI, CRAFTER, SCIENCEWORLD = map(envs.make, ("babyai", "crafter", "scienceworld"))
CHECKPOINTS = (0, 50, 100, 150, 200)
EVALUATIONS = [(point, point // 10) for point in CHECKPOINTS]
"""Checkpoints and the versions that they evaluate."""


def read(file: str) -> str:
    return (CHECKOUT / file).read_text(encoding="utf-8")


def prompt(name: str) -> str:
    return read(f"tests/golden/prompts/{name}.txt")


@cache
def runs(experiment: str) -> list[Config]:
    return [run.config for run in grid_of([f"experiment={experiment}"]).runs()]


def experiments() -> list[Config]:
    """The runs of all of the paper's experiments."""
    names = ("main", "models", "ablations", "interpreter", "zombies", "shift", "replay", "truncation")
    return [config for name in names for config in runs(name)]


@cache
def in_paper(*settings: str) -> Config:
    return compose([*settings, "preset=paper"])


def method_options(method: str, *settings: str) -> dict[str, object]:
    return in_paper(f"method={method}", *settings).method.options


def plan(*settings: str, trains: bool = True) -> list[Step]:
    return plan_run(BABYAI.splits(), in_paper(*settings).run, trains=trains)


def evaluations(*settings: str, trains: bool = True) -> list[Step]:
    return [step for step in plan(*settings, trains=trains) if hasattr(step, "checkpoint")]


def trained_tasks() -> list[envs.Task]:
    return [task for step in plan() if hasattr(step, "batch") for task in step.tasks.values()]


def claims() -> list[Claim]:
    return [claim for rows in list_claims() for claim in rows]


def statistics(source: str) -> libraries.LibraryStatistics:
    return libraries.library_statistics(read_text(source))


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['place']} {row['paper'][:40]}" for row in ROWS])
def test_a_row_names_its_test(row: dict[str, str]) -> None:
    assert (row["ours"] == "same") == (not row["effect"])
    file, _, test = row["test"].partition("::")
    assert re.search(rf"^ *(async )?def {test}\(", read(file), re.MULTILINE)


def test_the_page_shows_rows_of_the_table() -> None:
    page = read("docs/methods.md").partition("## Deviations from the paper")[2]
    shown = re.findall(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", page, re.MULTILINE)[1:]
    assert len(shown) >= 10
    assert {*shown} <= {(row["place"], row["paper"], row["ours"], row["effect"]) for row in ROWS}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("babyai/inducer", "rename_skill"),
        ("babyai/inducer", "Make main functions public and helper functions private"),
        ("babyai/inducer", "They decide by what they observe, their loops always end, and they return"),
        ("babyai/inducer", "- Keep the library small.\n"),
        ("babyai/inducer", "The actor does best with few strong tools."),
        ("babyai/inducer", "What a skill stores in a constant lasts until the episode ends."),
        ("babyai/actor", "Open or close what is in front of you: a door, or a box."),
        ("babyai/ace_curator", "- [1] (helped 3, harmed 1) Look around"),
        ("babyai/inducer", '"name":"execute_code"'),
        ("babyai/inducer_asi_style", "The library should contain the behavior that was observed"),
        ("babyai/optimizer", "new notes that replace the current ones completely"),
        ("babyai/asi", "its successful calls in order, each after the first sentence of the actor's thought"),
        ("babyai/asi_12_skills", "\n# routine_"),
        ("babyai/ace_curator_add_only", '"name":"add_items"'),
        ("babyai/ace_reflector_playbook", "The items that mattered:"),
        ("babyai/actor_12_skills", "Prefer a skill that fits over many single actions."),
        ("babyai/actor", "Your task: go to the green box after you pick up the purple ball"),
        ("crafter/actor", "needs wood in your inventory"),
        ("crafter/voyager_curriculum", "22. Collect Diamond"),
        ("crafter/voyager_critic", "Before the program:"),
    ],
)
def test_a_prompt_says_so(name: str, words: str) -> None:
    assert words in prompt(name)


def test_section_2() -> None:
    assert method_options("speedrunner")["sees"] == "score"
    assert len(trained_tasks()) == len({*trained_tasks()}) == 200
    assert len(rules.ALLOWED_MODULES) == 15


def test_section_3() -> None:
    for initial in (make(name).initial() for name in METHODS):
        assert (initial.skills, initial.version) == ((), 0)
    assert trained_tasks() == BABYAI.splits().train
    assert CRAFTER.splits() != CRAFTER.splits(seed=1)
    session = read("tests/golden/prompts/babyai/inducer_listed_skills.txt")
    assert "policy (the library version that it was played with)" in session
    assert "library_source(version)" in session
    assert "load_trajectories(batch=None, policy=None): return recorded episodes" in session
    assert call_tree.EPISODE_LIMIT == 16_000_000
    shown = [f'"name":"routine_{number}"' in prompt("babyai/actor_12_skills") for number in ("002", "003")]
    assert shown == [True, False]
    assert interpreter.CODE_WALL_S == 60.0
    assert speedrunner_method.SOURCE_TOKENS == 15_000
    assert inducer.SLEEPS_SHOWN == 5
    assert in_paper("env=crafter").env.options["description"] == "paper"
    assert in_paper().run.reply_chars == 4000
    assert (rules.MODULE_BYTES, rules.SOURCE_LIMIT) == (1_250_000, 20_000)
    ours = [config.method.options for config in runs("main") if config.method.name == "speedrunner"]
    assert {(options["interpreter"], options["visibility"]) for options in ours} == {("on", "split")}


def test_section_4() -> None:
    listed = [f"- {primitive.name}{primitive.signature}: " for primitive in BABYAI.primitives]
    assert all(line in prompt("babyai/inducer") for line in listed)
    assert method_options("react") == {"train": False}
    evaluated = [(step.checkpoint, step.policy) for step in plan(trains=False)]
    assert evaluated == [(point, 0) for point in CHECKPOINTS]
    assert QWEN.roles.inducer.string_tokens == 8192
    assert {config.env.name for config in experiments() if config.method.name == "voyager"} == {"crafter"}
    assert [env.name for env in (BABYAI, SCIENCEWORLD, CRAFTER) if env.goals] == ["crafter"]
    families = {config.env.options.get("family") for config in runs("main") if config.env.name != "crafter"}
    assert families - {None} == {3, 4}
    assert len(scienceworld.FAMILIES) == 10
    assert BABYAI.splits().train[0].name == "pick_up_seq_go_to"
    assert in_paper("env=babyai").env.options["num_dists"] == 0
    assert (len(CRAFTER.goals), CRAFTER.limits.actions) == (22, 2000)
    assert [*map(version, ("scienceworld", "crafter", "minigrid"))] == ["1.2.3", "1.8.3", "3.2.0"]
    assert {config.model.name for config in runs("main")} == {"gpt-5.4-mini"}
    settings = [config.run for config in experiments()]
    assert {(run.rollouts, run.sleep_every) for run in settings} == {(200, 10), (0, 10)}
    assert {(run.wall_clock_s, run.wall_clock) for run in settings} == {(1800, "all")}
    assert {run.seed for run in settings} == {0, 1, 2}
    assert {(run.test_episodes, run.eval_every) for run in settings} == {(30, 50)}
    assert {(run.max_actions, run.stop_after_repeats) for run in settings} == {(None, 0)}
    assert in_paper().run.in_flight == 16
    assert "at_most" in LedgerRow.__struct_fields__
    seeds = [pandas.Series({50: score}) for score in (0.0, 2.0)]
    assert means.spread_seeds(seeds)[50].sd == pytest.approx(2**0.5)
    assert {(*step.tasks.values(),) for step in evaluations()} == {(*BABYAI.splits().test,)}
    assert [(step.checkpoint, step.policy) for step in evaluations()] == EVALUATIONS
    often = [step.policy for step in evaluations("run.eval_every=25")]
    assert often == [0, 2, 5, 7, 10, 12, 15, 17, 20]
    assert means.TESTED == ("score", "output", "cost_usd")


def test_section_5() -> None:
    near_perfect = [claim for claim in claims() if claim.paper == "near-perfect"]
    assert {(claim.low, claim.high) for claim in near_perfect} == {(0.95, None)}
    about = [claim for claim in claims() if claim.paper == "about 67%"]
    assert {(round(claim.low / 0.8, 9), round(claim.high / 1.2, 9)) for claim in about} == {(0.67, 0.67)}
    assert len(paper.list_published()) > 100
    assert len(list_claims()) >= 60


def test_section_6() -> None:
    names = ("prompt", "visibility", "interpreter")
    changed = {config.method.options.get(name) for config in runs("ablations") for name in names}
    assert changed >= {"asi_style", "all_public", "off"}
    scores = SimpleNamespace(checkpoints=pandas.DataFrame({"score": [9.0, 0.0, 2.0]}))
    assert RunResult.values(scores, 4, "instability").tolist() == [pytest.approx(2**0.5)]
    assert {config.method.name for config in runs("zombies")} == {"react", "opo", "voyager", "speedrunner"}
    usual = {run_name(config) for config in runs("zombies") if config.env.options["zombie_frequency"] == 1}
    assert usual
    assert usual <= {run_name(config) for config in runs("main")}
    assert statistics("def a():\n    return 'zombie'\n\n\ndef zombie():\n    return 1").combat == 0.5
    shift = runs("shift")
    assert {config.run.rollouts for config in shift} == {0, 200}
    assert all(config.run.carry_history for config in shift)
    assert any(config.run.rollouts == 0 and config.env.options.get("family") == 3 for config in shift)
    usd = {claim.measure for claim in claims() if claim.claim == "retention-cost"}
    assert usd == {"usd", "usd_cold", "usd_provider"}


def test_appendix_a() -> None:
    gpt, qwen = GPT.roles, QWEN.roles
    assert [role.reasoning_effort for role in (gpt.actor, gpt.inducer)] == ["low", "medium"]
    assert [role.thinking_tokens for role in (qwen.actor, qwen.inducer)] == [256, 2048]
    assert [role.temperature for role in (gpt.actor, qwen.actor, qwen.inducer)] == [None, 1.0, 0.6]
    assert [role.string_tokens for role in (qwen.actor, gpt.actor, gpt.inducer)] == [1024, 4096, 16384]
    assert (GPT.context, QWEN.context) == (400_000, 262_144)
    assert GPT.role("programmer") == gpt.inducer
    sent = ChatConversation(GPT, [], [], gpt.actor, {}).options  # type: ignore[arg-type]
    assert (sent["parallel_tool_calls"], sent["tool_choice"]) == (False, "required")
    assert [env.limits.llm_calls for env in (SCIENCEWORLD, BABYAI, CRAFTER)] == [100, 30, 2000]
    assert SCIENCEWORLD.submits
    assert {config.method.options.get("inducer_calls", 100) for config in experiments()} == {100}
    assert method_options("speedrunner")["inducer_calls"] == 100
    assert method_base.TRIES == 3
    assert all(config.run.start_from is None for config in runs("main"))
    sandbox = in_paper().sandbox
    assert (sandbox.memory_mb, sandbox.call_wall_s, sandbox.call_actions) == (1024, 300.0, 5000)
    assert in_paper().run.sleep_wall_s == 14400
    assert [(step.checkpoint, len(step.tasks)) for step in evaluations()] == [(n, 30) for n in CHECKPOINTS]
    cost = Prices(uncached=2.0, cached=1.0, output=10.0).cost(Usage(3, 1, 7, 3))
    assert cost == pytest.approx((1 * 1 + 2 * 2 + (3 + 4) * 10) / 1e6)
    assert CacheRule().name == "engine"
    measures = [claim.measure for claim in claims() if claim.is_usd]
    for place, rule in enumerate(RULES, start=1):
        assert measures[place::3] == [f"{measure}_{rule}" for measure in measures[::3]]
    assert not any(config.prices.given for config in experiments())
    assert QWEN.prices == Prices(0, 0, 0)
    for name, expected in (
        ("gpt-5.4-mini", (0.75, 0.075, 4.50)),
        ("gemini-3-flash-preview", (0.35, 0.0875, 1.05)),
    ):
        assert load_model_config(name).prices == Prices(*expected)
        given = in_paper(f"prices={name}").prices
        assert (given.uncached, given.cached, given.output) == expected
    cache_rule = in_paper("prices=gpt-5.4-mini").prices
    assert (cache_rule.cache_minimum, cache_rule.cache_step) == (1024, 128)


def test_appendix_b() -> None:
    for split in (SCIENCEWORLD.splits(family=family) for family in (3, 4)):
        assert (len(split.train), len(split.test)) == (200, 30)
    assert scienceworld.SPLIT_SEED == 42
    sent: list[object] = []
    simulator = SimpleNamespace(_ask=lambda *given: sent.extend(given))
    scienceworld.Simulator.load(simulator, "boil", 0)  # type: ignore[arg-type]
    assert sent == ["load", "boil", 0, "", False]
    primitives = {primitive.name: primitive.signature.parameters for primitive in SCIENCEWORLD.primitives}
    assert " ".join(primitives) == (
        "go look_around look_at look_in pick_up put_down move pour dunk open close activate "
        "deactivate connect disconnect mix focus_on read use inventory task_description eat flush "
        "wait disambiguate"
    )
    assert [*primitives["connect"]] == ["obj_a", "obj_b"]
    assert primitives["disambiguate"]["option"].annotation is int
    assert scienceworld.PHRASES["wait"]() == "wait1"
    assert "valid_actions" not in read("envs/scienceworld.py")
    assert scienceworld.HEADING == "Task Description:"


def test_appendix_c() -> None:
    split = BABYAI.splits()
    assert len(split.train) == 200
    drawn = random.Random(42).sample(range(100_000), 230)
    assert [task.index for task in split.train + split.test] == drawn
    assert (len(babyai.WORLD_SEEDS), len(crafter.WORLD_SEEDS)) == (100_000, 2**31 - 1)
    names = " ".join(primitive.name for primitive in BABYAI.primitives)
    assert names == "turn_left turn_right go_forward pick_up drop toggle"
    assert BABYAI.limits.actions == 128


def test_appendix_d() -> None:
    seeds = {config.env.options["seed"] for config in runs("main") if config.env.name == "crafter"}
    assert seeds == {0, 1, 2}
    assert " ".join(primitive.name for primitive in CRAFTER.primitives) == (
        "move_north move_south move_east move_west do sleep noop place_stone place_table "
        "place_furnace place_plant make_wood_pickaxe make_stone_pickaxe make_iron_pickaxe "
        "make_wood_sword make_stone_sword make_iron_sword get_current_observation"
    )
    assert not CRAFTER.submits
    assert crafter.SIGHT == 4
    assert in_paper("env=crafter").env.options["view"] == "nearest"
    assert CRAFTER.free_observation() is None
    assert crafter.DEAD == "You died."
    assert (CRAFTER.limits.llm_calls, CRAFTER.limits.actions) == (2000, 2000)
    assert len(crafter.ACHIEVEMENTS) == 22
    listed = "\n".join(f"{number}. {name}" for number, name in enumerate(crafter.ACHIEVEMENTS, 1))
    assert listed in prompt("crafter/actor")
    assert {config.env.options["zombie_frequency"] for config in runs("zombies")} == {0, 1, 2}


def test_appendix_e() -> None:
    templates = sorted(path.name for path in (CHECKOUT / "speedrunner/methods/prompts/asi").iterdir())
    assert templates == ["example.jinja", "system.jinja", "user.jinja"]
    assert (asi.MOST_LINES, asi.LEAST_CALLS, asi.MOST_CALLS) == (10, 2, 5)


def test_appendix_f() -> None:
    templates = sorted(path.name for path in (CHECKOUT / "speedrunner/methods/voyager/prompts").iterdir())
    assert templates == ["actor", "critic", "curriculum"]
    policy = (
        Library(CRAFTER.primitives)
        .write('def a() -> str:\n    """A."""\n    return "a"', sleep=1)
        .policy(Policy(version=0))
    )
    first, *others = (make(name).agent(policy, None, CRAFTER) for name in ("voyager", "asi", "speedrunner"))
    assert len(first.library.public) == 1
    assert others == [first, first]
    options = method_options("voyager", "env=crafter")
    assert (options["retrieve"], options["tries"]) == (5, 4)
    assert rollout.OBJECTIVE_CHARS == 200


def test_appendix_g() -> None:
    models = {config.model.name for config in runs("models")}
    assert models == {"gpt-5.4-mini", "gemini-3-flash-preview", "qwen3.5-27b"}
    replayed = {(config.env.name, config.env.options["family"]) for config in runs("replay")}
    assert replayed == {("scienceworld", 3)}
    assert (QWEN.dtype, QWEN.thinking) == ("bfloat16", "prompted")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def a():\n    return _b()\n\n\ndef _b():\n    if 1:\n        return 2", (2, 1, 0.5, 1.5)),
        ("def a():\n    return b()\n\n\ndef b():\n    return a()", (2, 0, 1.0, 1.0)),
        ("def a():\n    def b():\n        if 1:\n            return 2\n    return b()", (1, 0, 0.0, 1.0)),
        ("def a():\n    return b\n\n\ndef b():\n    return 1", (2, 1, 0.5, 1.0)),
    ],
)
def test_appendix_h(source: str, expected: tuple[int, int, float, float]) -> None:
    found = statistics(source)
    assert (found.functions, found.max_depth, found.density, found.cyclomatic) == expected


def test_appendix_j() -> None:
    assert len(libraries.COMBAT) == 14
    assert {config.run.seed for config in runs("zombies")} == {0, 1, 2}


def test_appendix_k() -> None:
    truncated = runs("truncation")
    visible = {config.library.visible_last for config in truncated}
    assert visible == {None, 50, 100, 200, 400, 800}
    assert len({config.run.seed for config in truncated}) == 3
    first, _, second = prompt("babyai/actor_12_skills").partition("=== system")
    assert ('"name":"routine_001"' in first, "routine_" in second) == (True, False)
    started = [config.run for config in truncated if config.run.start_from]
    assert started
    assert all(run.start_from.endswith(f"-seed{run.seed}") for run in started)
    assert paper.WITHOUT == "score_without_library"


def test_our_own_methods() -> None:
    assert "newest_batch(history)" in read("speedrunner/methods/ace.py")
    assert ace.PLAYBOOK_SHARE == 0.125
    learners = ("speedrunner", "prose", "opo", "ace", "asi")
    assert [name for name in learners if "inducer_calls" in method_options(name)] == ["speedrunner", "prose"]
