"""What docs/deviations.csv says about this program is so: each row names the test that checks it."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest
from msgspec.structs import astuple

import envs
from serving.model_configs import CHECKOUT
from serving.model_configs import load_model_config as model
from serving.usage import Prices, Usage
from speedrunner.config.compose import compose
from speedrunner.config.grid import grid_of
from speedrunner.config.schema import Config
from speedrunner.results.claims import Claim, list_claims
from speedrunner.runs.plan import Step, plan_run

with (CHECKOUT / "docs/deviations.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))

env = cache(envs.make)


def read(file: str) -> str:
    return (CHECKOUT / file).read_text(encoding="utf-8")


def at(place: str) -> Any:
    module, name = place.split(":")
    return attrgetter(name)(import_module(module))


@cache
def runs(experiment: str) -> list[Config]:
    return [run.config for run in grid_of([f"experiment={experiment}"]).runs()]


def experiments() -> list[Config]:
    """The runs of all of the paper's experiments."""
    names = ("main", "models", "ablations", "interpreter", "zombies", "shift", "replay", "truncation")
    return [config for name in names for config in runs(name)]


@cache
def paper(*settings: str) -> Config:
    return compose([*settings, "preset=paper"])


def plan(*settings: str, trains: bool = True) -> list[Step]:
    return plan_run(envs.make("babyai").splits(), paper(*settings).run, trains=trains)


def prices(name: str) -> tuple[float, ...]:
    return astuple(model(name).prices)


def names(folder: str) -> list[str]:
    return sorted(path.name for path in (CHECKOUT / folder).iterdir())


def claims() -> list[Claim]:
    return [row for rows in list_claims() for row in rows]


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


def test_section_2() -> None:
    assert paper("method=speedrunner").method.options["sees"] == "score"
    assert (lambda tasks: len(tasks) == len({*tasks}) == 200)(
        [task for step in plan() if hasattr(step, "batch") for task in step.tasks.values()]
    )
    assert len(at("speedrunner.library.rules:ALLOWED_MODULES")) == 15


def test_section_3() -> None:
    assert all(
        m.initial().skills == () and m.initial().version == 0
        for m in map(
            at("speedrunner.methods.method_registry:make"), at("speedrunner.methods.method_registry:METHODS")
        )
    )
    assert [task for step in plan() if hasattr(step, "batch") for task in step.tasks.values()] == env(
        "babyai"
    ).splits().train
    assert env("crafter").splits() != env("crafter").splits(seed=1)
    assert "policy (the library version that it was played with)" in read(
        "speedrunner/methods/speedrunner/prompts/session.jinja"
    )
    assert "library_source(version)" in read("speedrunner/methods/speedrunner/prompts/session.jinja")
    assert at("speedrunner.workers.call_tree:EPISODE_LIMIT") == 16_000_000
    assert "rename_skill" in read("tests/golden/prompts/babyai/inducer.txt")
    assert "Make main functions public and helper functions private." in read(
        "tests/golden/prompts/babyai/inducer.txt"
    )
    assert [
        f'"name":"routine_{n}"' in read("tests/golden/prompts/babyai/actor_12_skills.txt")
        for n in ("002", "003")
    ] == [True, False]
    assert (
        paper("method=speedrunner").method.options["code_wall_s"],
        at("speedrunner.methods.speedrunner.speedrunner_method:SOURCE_TOKENS"),
    ) == (60.0, 15_000)
    assert at("speedrunner.methods.speedrunner.speedrunner_method:SLEEPS_SHOWN") == 5
    assert paper("env=crafter").env.options["description"] == "paper"
    assert paper().run.reply_chars == 4000
    assert "load_trajectories(batch=None, policy=None): return recorded episodes" in read(
        "speedrunner/methods/speedrunner/prompts/session.jinja"
    )
    assert (at("speedrunner.library.rules:MODULE_BYTES"), at("speedrunner.library.rules:SOURCE_LIMIT")) == (
        1_250_000,
        20_000,
    )
    assert {
        (c.method.options["interpreter"], c.method.options["visibility"])
        for c in runs("main")
        if c.method.name == "speedrunner"
    } == {("on", "split")}


def test_section_4_1() -> None:
    assert all(
        f"- {p.name}{p.signature}: " in read("tests/golden/prompts/babyai/inducer.txt")
        for p in env("babyai").primitives
    )
    assert paper("method=react").method.options == {"train": False}
    assert [(s.checkpoint, s.policy) for s in plan(trains=False)] == [(n, 0) for n in (0, 50, 100, 150, 200)]
    assert model("qwen3.5-27b").roles.inducer.string_tokens == 8192
    assert "new notes that replace the current ones completely" in read(
        "tests/golden/prompts/babyai/optimizer.txt"
    )
    assert paper("method=asi").method.options["successful"] == "better_half"
    assert {c.env.name for c in experiments() if c.method.name == "voyager"} == {"crafter"}
    assert [name for name in ("babyai", "scienceworld", "crafter") if env(name).goals] == ["crafter"]
    assert "its successful calls in order, without what they returned" in read(
        "tests/golden/prompts/babyai/asi.txt"
    )


def test_section_4_2() -> None:
    assert {c.env.options.get("family") for c in runs("main") if c.env.name == "scienceworld"} == {3, 4}
    assert len(at("envs.scienceworld_tasks:FAMILIES")) == 10
    assert env("babyai").splits().train[0].name == "pick_up_seq_go_to"
    assert paper("env=babyai").env.options["num_dists"] == 0
    assert (len(env("crafter").goals), env("crafter").limits.actions) == (22, 2000)
    assert [*map(at("importlib.metadata:version"), ("scienceworld", "crafter", "minigrid"))] == [
        "1.2.3",
        "1.8.3",
        "3.2.0",
    ]


def test_section_4_3() -> None:
    assert {c.model.name for c in runs("main")} == {"gpt-5.4-mini"}
    assert {(c.run.rollouts, c.run.sleep_every) for c in experiments()} == {(200, 10), (0, 10)}
    assert {(c.run.wall_clock_s, c.run.wall_clock) for c in experiments()} == {(1800, "all")}
    assert "at_most" in at("serving.meter:LedgerRow").__struct_fields__
    assert {c.run.seed for c in experiments()} == {0, 1, 2}
    assert round(at("speedrunner.results.means:spread")([0.0, 2.0]).sd ** 2, 9) == 2
    assert {c.run.test_episodes for c in experiments()} == {30}
    assert {(*s.tasks.values(),) for s in plan() if hasattr(s, "checkpoint")} == {
        (*env("babyai").splits().test,)
    }
    assert {c.run.eval_every for c in experiments()} == {50}
    assert [(s.checkpoint, s.policy) for s in plan() if hasattr(s, "checkpoint")] == [
        (n, n // 10) for n in (0, 50, 100, 150, 200)
    ]
    assert [s.policy for s in plan("run.eval_every=25") if hasattr(s, "checkpoint")] == [
        0,
        2,
        5,
        7,
        10,
        12,
        15,
        17,
        20,
    ]
    assert paper().run.in_flight == 16
    assert {(c.run.max_actions, c.run.stop_after_repeats) for c in experiments()} == {(None, 0)}
    assert at("speedrunner.results.means:TESTED") == ("score", "output", "cost_usd")


def test_section_5() -> None:
    assert (
        {c.method.options.get("overflow", "discard") for c in experiments()}
        == {"discard"}
        >= {paper("method=asi").method.options["overflow"]}
    )
    assert paper("method=speedrunner").method.options["on_limit"] == "adopt"
    assert {(c.low, c.high) for c in claims() if c.paper == "near-perfect"} == {(0.95, None)}
    assert {(round(c.low / 0.8, 9), round(c.high / 1.2, 9)) for c in claims() if c.paper == "about 67%"} == {
        (0.67, 0.67)
    }
    assert len(at("speedrunner.results.paper:list_published")()) > 100
    assert len(at("speedrunner.results.claims:list_claims")()) >= 60


def test_section_6_1() -> None:
    assert {
        c.method.options.get(k) for c in runs("ablations") for k in ("prompt", "visibility", "interpreter")
    } >= {"asi_style", "all_public", "off"}
    assert "The library should contain the behavior that was observed" in read(
        "tests/golden/prompts/babyai/inducer_asi_style.txt"
    )
    assert at("speedrunner.results.run_result:RunResult.values")(
        at("types:SimpleNamespace")(checkpoints=at("pandas:DataFrame")({"score": [9.0, 0.0, 2.0]})),
        4,
        "instability",
    ).round(9).tolist() == [round(2**0.5, 9)]


def test_section_6_3() -> None:
    assert {c.method.name for c in runs("zombies")} == {"react", "opo", "voyager", "speedrunner"}
    assert (
        set()
        != {
            at("speedrunner.config.names:run_name")(c)
            for c in runs("zombies")
            if c.env.options["zombie_frequency"] == 1
        }
        <= {at("speedrunner.config.names:run_name")(c) for c in runs("main")}
    )
    assert (
        at("speedrunner.results.libraries:library_statistics")(
            at("speedrunner.library.definition:read_text")(
                "def a():\n    return 'zombie'\n\n\ndef zombie():\n    return 1"
            )
        ).combat
        == 0.5
    )


def test_section_6_4() -> None:
    assert {c.run.rollouts for c in runs("shift")} == {0, 200}
    assert all(c.run.carry_history for c in runs("shift"))
    assert any(c.run.rollouts == 0 and c.env.options.get("family") == 3 for c in runs("shift"))
    assert {c.measure for c in claims() if c.claim == "retention-cost"} == {"usd", "usd_cold"}


def test_appendix_a_1() -> None:
    assert (
        model("gpt-5.4-mini").roles.actor.reasoning_effort,
        model("gpt-5.4-mini").roles.inducer.reasoning_effort,
        model("qwen3.5-27b").roles.actor.thinking_tokens,
        model("qwen3.5-27b").roles.inducer.thinking_tokens,
    ) == ("low", "medium", 256, 2048)
    assert model("gpt-5.4-mini").role("programmer") == model("gpt-5.4-mini").roles.inducer
    assert (
        lambda m: [
            at("serving.apis.chat_completions:ChatConversation")(m, [], [], m.roles.actor, {}).options[name]
            for name in ("parallel_tool_calls", "tool_choice")
        ]
    )(model("gpt-5.4-mini")) == [False, "required"]
    assert [env(name).limits.llm_calls for name in ("scienceworld", "babyai", "crafter")] == [100, 30, 2000]
    assert env("scienceworld").submits
    assert (
        {c.method.options.get("inducer_calls", 100) for c in experiments()}
        == {100}
        >= {paper("method=speedrunner").method.options["inducer_calls"]}
    )
    assert at("speedrunner.methods.method_base:TRIES") == 3
    assert (
        model("gpt-5.4-mini").roles.actor.temperature,
        model("qwen3.5-27b").roles.actor.temperature,
        model("qwen3.5-27b").roles.inducer.temperature,
    ) == (None, 1.0, 0.6)
    assert (
        model("qwen3.5-27b").roles.actor.string_tokens,
        model("gpt-5.4-mini").roles.actor.string_tokens,
        model("gpt-5.4-mini").roles.inducer.string_tokens,
    ) == (1024, 4096, 16384)
    assert (model("gpt-5.4-mini").context, model("qwen3.5-27b").context) == (400_000, 262_144)
    assert all(c.run.start_from is None for c in runs("main"))
    assert (paper().sandbox.memory_mb, paper().sandbox.call_wall_s, paper().sandbox.call_actions) == (
        1024,
        300.0,
        5000,
    )
    assert paper().run.sleep_wall_s == 14400


def test_appendix_a_2() -> None:
    assert [(s.checkpoint, len(s.tasks)) for s in plan() if hasattr(s, "checkpoint")] == [
        (n, 30) for n in (0, 50, 100, 150, 200)
    ]


def test_appendix_a_3() -> None:
    assert (
        round(Prices(uncached=2.0, cached=1.0, output=10.0).cost(Usage(3, 1, 7, 3)) * 1e6, 9)
        == 1 * 1 + 2 * 2 + (3 + 4) * 10
    )
    assert at("speedrunner.results.pricing:CacheRule")().name == "engine"
    assert (
        lambda usd: (
            [c.measure.replace("_cold", "") for c in usd[1::2]] == [c.measure for c in usd[::2]]
            and all(c.measure.endswith("_cold") for c in usd[1::2])
        )
    )([c for own in at("speedrunner.results.claims:list_claims")() for c in own if c.is_usd])
    assert [
        prices("gpt-5.4-mini"),
        *[(p.uncached, p.cached, p.output) for p in [paper("prices=gpt-5.4-mini").prices]],
    ] == [(0.75, 0.075, 4.50)] * 2
    assert not any(c.prices.given for c in experiments())
    assert [
        prices("gemini-3-flash-preview"),
        *[(p.uncached, p.cached, p.output) for p in [paper("prices=gemini-3-flash-preview").prices]],
    ] == [(0.35, 0.0875, 1.05)] * 2
    assert prices("qwen3.5-27b") == (0, 0, 0)
    assert (
        paper("prices=gpt-5.4-mini").prices.cache_minimum,
        paper("prices=gpt-5.4-mini").prices.cache_step,
    ) == (1024, 128)


def test_appendix_b_1() -> None:
    assert all(
        (len(s.train), len(s.test)) == (200, 30)
        for s in (env("scienceworld").splits(family=n) for n in (3, 4))
    )
    assert at("envs.scienceworld_tasks:SPLIT_SEED") == 42
    assert (
        lambda sent: (
            at("envs.scienceworld:Simulator.load")(
                at("types:SimpleNamespace")(_ask=lambda *given: sent.extend(given)), "boil", 0
            )
            or sent
        )
    )([]) == ["load", "boil", 0, "", False]


def test_appendix_b_2() -> None:
    assert " ".join(p.name for p in env("scienceworld").primitives) == (
        "go look_around look_at look_in pick_up put_down move pour dunk open close activate "
        "deactivate connect disconnect mix focus_on read use inventory task_description eat flush "
        "wait disambiguate"
    )
    assert [*next(p for p in env("scienceworld").primitives if p.name == "connect").signature.parameters] == [
        "obj_a",
        "obj_b",
    ]
    assert (
        next(p for p in env("scienceworld").primitives if p.name == "disambiguate")
        .signature.parameters["option"]
        .annotation
        is int
    )
    assert at("envs.scienceworld:PHRASES")["wait"]() == "wait1"
    assert "valid_actions" not in read("envs/scienceworld.py")
    assert "Prefer a skill that fits over many single actions." in read(
        "tests/golden/prompts/babyai/actor_12_skills.txt"
    )
    assert "needs wood in your inventory" in read("tests/golden/prompts/crafter/actor.txt")


def test_appendix_b_3() -> None:
    assert at("envs.scienceworld:HEADING") == "Task Description:"


def test_appendix_c_1() -> None:
    assert (lambda s: (len(s.train), [*map(at("operator:attrgetter")("index"), s.train + s.test)]))(
        env("babyai").splits()
    ) == (200, at("random:Random")(42).sample(range(100_000), 230))
    assert (len(at("envs.babyai:WORLD_SEEDS")), len(at("envs.crafter:WORLD_SEEDS"))) == (100_000, 2**31 - 1)


def test_appendix_c_2() -> None:
    assert [p.name for p in env("babyai").primitives] == [
        "turn_left",
        "turn_right",
        "go_forward",
        "pick_up",
        "drop",
        "toggle",
    ]


def test_appendix_c_3() -> None:
    assert env("babyai").limits.actions == 128
    assert "Your task: go to the green box after you pick up the purple ball" in read(
        "tests/golden/prompts/babyai/actor.txt"
    )


def test_appendix_d_1() -> None:
    assert {c.env.options["seed"] for c in runs("main") if c.env.name == "crafter"} == {0, 1, 2}


def test_appendix_d_2() -> None:
    assert " ".join(p.name for p in env("crafter").primitives) == (
        "move_north move_south move_east move_west do sleep noop place_stone place_table "
        "place_furnace place_plant make_wood_pickaxe make_stone_pickaxe make_iron_pickaxe "
        "make_wood_sword make_stone_sword make_iron_sword get_current_observation"
    )
    assert not env("crafter").submits


def test_appendix_d_3() -> None:
    assert at("envs.crafter_text:SIGHT") == 4
    assert paper("env=crafter").env.options["view"] == "nearest"
    assert env("crafter").free_observation() is None
    assert at("envs.crafter_text:DEAD") == "You died."


def test_appendix_d_4() -> None:
    assert (env("crafter").limits.llm_calls, env("crafter").limits.actions) == (2000, 2000)


def test_appendix_d_5() -> None:
    assert len(at("envs.crafter:ACHIEVEMENTS")) == 22
    assert "\n".join(f"{n}. {name}" for n, name in enumerate(at("envs.crafter:ACHIEVEMENTS"), 1)) in read(
        "tests/golden/prompts/crafter/actor.txt"
    )


def test_appendix_d_6() -> None:
    assert {c.env.options["zombie_frequency"] for c in runs("zombies")} == {0, 1, 2}


def test_appendix_e() -> None:
    assert names("speedrunner/methods/prompts/asi") == ["example.jinja", "system.jinja", "user.jinja"]
    assert (
        at("speedrunner.methods.asi:MOST_LINES"),
        at("speedrunner.methods.asi:LEAST_CALLS"),
        at("speedrunner.methods.asi:MOST_CALLS"),
    ) == (10, 2, 5)
    assert "\n# routine_" in read("tests/golden/prompts/babyai/asi_12_skills.txt")


def test_appendix_f() -> None:
    assert names("speedrunner/methods/voyager/prompts") == ["actor", "critic", "curriculum"]
    assert "22. Collect Diamond" in read("tests/golden/prompts/crafter/voyager_curriculum.txt")
    assert (lambda first, *others: len(first.library.public) == 1 and all(each == first for each in others))(
        *[
            at("speedrunner.methods.method_registry:make")(name).agent(
                at("speedrunner.library.library:Library")(env("crafter").primitives)
                .write('def a() -> str:\n    """A."""\n    return "a"', sleep=1)
                .policy(at("speedrunner.store.records:Policy")(version=0)),
                None,
                env("crafter"),
            )
            for name in ("voyager", "asi", "speedrunner")
        ]
    )
    assert paper("method=voyager", "env=crafter").method.options["retrieve"] == 5
    assert "Before the program:" in read("tests/golden/prompts/crafter/voyager_critic.txt")
    assert paper("method=voyager", "env=crafter").method.options["tries"] == 4
    assert at("speedrunner.methods.voyager.rollout:OBJECTIVE_CHARS") == 200


def test_appendix_g() -> None:
    assert {c.model.name for c in runs("models")} == {"gpt-5.4-mini", "gemini-3-flash-preview", "qwen3.5-27b"}
    assert {(c.env.name, c.env.options["family"]) for c in runs("replay")} == {("scienceworld", 3)}
    assert (model("qwen3.5-27b").dtype, model("qwen3.5-27b").thinking) == ("bfloat16", "prompted")


def test_appendix_h() -> None:
    assert (lambda s: (s.functions, s.max_depth, s.density, s.cyclomatic))(
        at("speedrunner.results.libraries:library_statistics")(
            at("speedrunner.library.definition:read_text")(
                "def a():\n    return _b()\n\n\ndef _b():\n    if 1:\n        return 2"
            )
        )
    ) == (2, 1, 0.5, 1.5)
    assert [
        (s.functions, s.max_depth, s.cyclomatic)
        for s in (
            at("speedrunner.results.libraries:library_statistics")(
                at("speedrunner.library.definition:read_text")(text)
            )
            for text in (
                "def a():\n    return b()\n\n\ndef b():\n    return a()",
                "def a():\n    def b():\n        if 1:\n            return 2\n    return b()",
            )
        )
    ] == [(2, 0, 1.0), (1, 0, 1.0)]
    assert (
        at("speedrunner.results.libraries:library_statistics")(
            at("speedrunner.library.definition:read_text")(
                "def a():\n    return b\n\n\ndef b():\n    return 1"
            )
        ).max_depth
        == 1
    )


def test_appendix_i() -> None:
    assert '"name":"execute_code"' in read("tests/golden/prompts/babyai/inducer.txt")


def test_appendix_j() -> None:
    assert len(at("speedrunner.results.libraries:COMBAT")) == 14
    assert {c.run.seed for c in runs("zombies")} == {0, 1, 2}


def test_appendix_k() -> None:
    assert {c.library.visible_last for c in runs("truncation")} == {None, 50, 100, 200, 400, 800}
    assert len({c.run.seed for c in runs("truncation")}) == 3
    assert (lambda parts: ('"name":"routine_001"' in parts[0], "routine_" in parts[2]))(
        read("tests/golden/prompts/babyai/actor_12_skills.txt").partition("=== system")
    ) == (True, False)
    assert {
        c.run.start_from.endswith(f"-seed{c.run.seed}") for c in runs("truncation") if c.run.start_from
    } == {True}
    assert at("speedrunner.results.paper:WITHOUT") == "score_without_library"


def test_section__() -> None:
    assert "newest_batch(history)" in read("speedrunner/methods/ace.py")
    assert "The items that mattered:" in read("tests/golden/prompts/babyai/ace_reflector_playbook.txt")
    assert at("speedrunner.methods.ace:PLAYBOOK_SHARE") == 0.125
    assert "returns no row now, since no skill runs" in read(
        "tests/golden/prompts/babyai/inducer_skill_folder.txt"
    )
