"""The figures: what is drawn where, as data. `drawing` draws them for the page, `printing` for a paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from speedrunner.report.panels import (
    LABELS,
    OUTPUT,
    ROLLOUTS,
    SCORE,
    USD,
    Drawn,
    Figure,
    Line,
    Panel,
    bars_of,
    line_of,
)
from speedrunner.statistics.groups import FAMILIES, Group, Spread
from speedrunner.statistics.series import PLACES, frontier, methods, places
from speedrunner.statistics.without_cache import cache_effects, has_cache

MAIN = ("react", "opo", "asi", "voyager", "speedrunner")
ABLATIONS = (
    "speedrunner-interpreter_off",
    "speedrunner-prompt_asi_style",
    "speedrunner-visibility_all_public",
)
UNCACHED = (*((name, "babyai") for name in MAIN if name != "voyager"), ("voyager", "crafter"))
"""Methods and environments that are evaluated without prefix cache, too."""

ZOMBIES = {"0x": "crafter-zombie_frequency0", "1x": "crafter", "2x": "crafter-zombie_frequency2"}


def figures(groups: Sequence[Group], options: str = "") -> list[Figure]:
    """All figures of some runs, for each model that was played: the main ones first.

    Args:
        options: what the command that fills a gap has beside experiment and model.
    """
    models = sorted({group.setting.model for group in groups if has_cache(group)})
    main = (_learning, partial(_pareto, measure=USD), partial(_pareto, measure=OUTPUT))
    others = (_ablations, _interpreter, _zombies, _shift, _replay, _tokens, _cache)
    made = (make(groups, model, options) for makers in (main, others) for model in models for make in makers)
    return [figure for figure in made if figure is not None]


def _learning(groups: Sequence[Group], model: str, options: str) -> Figure | None:
    drawn = Drawn(groups, model, "main", options)
    columns = _places(drawn.groups)
    rows = [
        [_curves(drawn, title, envs, _main(groups, envs, model), measure) for title, envs in columns.items()]
        for measure in (SCORE, OUTPUT, USD)
    ]
    text = (
        "Means over test episodes and seeds at each checkpoint, bands one standard deviation over seeds:"
        " score, output tokens and USD per test episode. ScienceWorld is the mean of its two families."
    )
    return drawn.figure("combined_performance", "Performance and cost over training", text, rows)


def _places(groups: Sequence[Group]) -> dict[str, tuple[str, ...]]:
    """Those of the main experiment, and any others that are none of its variants."""
    return {
        title: envs
        for title, envs in places(groups).items()
        if title in PLACES or envs[0] not in ZOMBIES.values()
    }


def _main(groups: Sequence[Group], envs: Sequence[str], model: str) -> list[str]:
    """The main methods that a place should have, and any other one that is none of their variants."""
    known = [name for name in MAIN if name != "voyager" or envs == ("crafter",)]
    own = [
        name for name in methods(groups, envs, model) if name.partition("-")[0] not in (*MAIN, "asi_replay")
    ]
    return [*known, *own]


def _curves(drawn: Drawn, title: str, envs: Sequence[str], names: Iterable[str], measure: str) -> Panel:
    lines = (drawn.line(envs, name, measure) for name in names)
    return Panel(title, ROLLOUTS, LABELS[measure], [line for line in lines if line is not None])


def _pareto(groups: Sequence[Group], model: str, options: str, *, measure: str) -> Figure | None:
    drawn = Drawn(groups, model, "main", options)
    row = [
        _points(drawn, title, envs, _main(groups, envs, model), measure)
        for title, envs in _places(drawn.groups).items()
    ]
    name = "combined_performance_pareto" if measure == USD else "pareto_frontier"
    text = (
        f"Score against {LABELS[measure]}, both at the last checkpoint. The line joins what no other method"
        " beats in both."
    )
    return drawn.figure(name, f"Score against {LABELS[measure]}", text, [row])


def _points(drawn: Drawn, title: str, envs: Sequence[str], names: Iterable[str], measure: str) -> Panel:
    found: dict[str, tuple[Spread, Spread]] = {}
    for name in names:
        cost, score = drawn.curve(envs, name, measure).last, drawn.curve(envs, name, SCORE).last
        if cost is not None and score is not None:
            found[name] = cost, score
    lines = [
        Line(name, [cost.mean], [score.mean], [score.sd], score.seeds)
        for name, (cost, score) in found.items()
    ]
    best = frontier({name: (cost.mean, score.mean) for name, (cost, score) in found.items()})
    return Panel(title, LABELS[measure], LABELS[SCORE], lines, kind="points", frontier=best)


def _ablations(groups: Sequence[Group], model: str, options: str) -> Figure | None:
    drawn = Drawn(groups, model, "ablations", options)
    played = methods(groups, ["babyai"], model)
    names = ("speedrunner", *ABLATIONS) if {*ABLATIONS} & {*played} else ()
    row = [_curves(drawn, "BabyAI", ["babyai"], names, measure) for measure in (SCORE, OUTPUT)]
    text = "SpeedRunner with one part taken away: its code interpreter, its prompt, private skills."
    return drawn.figure("babyai_ablations", "Ablations on BabyAI", text, [row])


def _interpreter(groups: Sequence[Group], model: str, options: str) -> Figure | None:
    drawn = Drawn(groups, model, "interpreter", options)
    names = ("speedrunner", ABLATIONS[0])
    there = {
        title: envs
        for title, envs in places(drawn.groups).items()
        if title in ("Crafter", "ScienceWorld", *FAMILIES) and names[1] in methods(groups, envs, model)
    }
    rows = [
        [_curves(drawn, title, envs, names, measure) for title, envs in there.items()]
        for measure in (SCORE, OUTPUT)
    ]
    text = "SpeedRunner with its code interpreter and without."
    return drawn.figure("combined_ablations", "The code interpreter", text, rows)


def _zombies(groups: Sequence[Group], model: str, options: str) -> Figure | None:
    drawn = Drawn(groups, model, "zombies", options)
    played = {group.setting.env for group in drawn.groups}
    if not {ZOMBIES["0x"], ZOMBIES["2x"]} & played:
        return None
    lines, over = [], []
    for name in ("react", "opo", "voyager", "speedrunner"):
        found = {times: drawn.curve([env], name, SCORE).last for times, env in ZOMBIES.items()}
        combat = {times: drawn.curve([env], name, "combat_percent").last for times, env in ZOMBIES.items()}
        lines += [*bars_of(name, found)]
        over += [*bars_of(name, combat)] if name in ("voyager", "speedrunner") else []
    panel = Panel(
        "Crafter", "zombies", LABELS[SCORE], lines, kind="bars", over=over, over_y=LABELS["combat_percent"]
    )
    text = (
        "Final score with no zombies, as many as usual and twice as many (bars), and the share of functions"
        " about combat in the library (dotted lines)."
    )
    return drawn.figure("zombie_sweep", "External randomness", text, [[panel]])


def _shift(groups: Sequence[Group], model: str, options: str) -> Figure | None:
    drawn = Drawn(groups, model, "shift", options)
    third, fourth = FAMILIES
    if not any(f"-from_{third}" in name for name in methods(groups, [fourth], model)):
        return None
    row = []
    for measure in (SCORE, OUTPUT):
        lines = []
        for name in ("react", "opo", "asi", "speedrunner"):
            second = name if name == "react" else f"{name}-from_{third}"
            before, after = drawn.curve([third], name, measure), drawn.curve([fourth], second, measure)
            end = max(before.points, default=0)
            points = {**before.points, **{end + x: each for x, each in after.points.items() if x}}
            if name != "react":
                again = drawn.curve([third], f"{name}-from_{fourth}-{name}-from_{third}", measure)
                if again.last is not None and points:
                    points[max(points) + 50] = again.last
            line = line_of(name, points)
            lines += [line] if line else []
        row.append(Panel("ScienceWorld 3, then 4, then 3 again", ROLLOUTS, LABELS[measure], lines))
    text = (
        "Training on family 3, then on 4 with what was learnt; the last point is the evaluation on 3 at the"
        " end, drawn 50 rollouts later."
    )
    return drawn.figure("scienceworld_shift", "Distribution shift", text, [row])


def _replay(groups: Sequence[Group], model: str, options: str) -> Figure | None:
    drawn = Drawn(groups, model, "replay", options)
    names = (
        ("asi", "asi_replay", "speedrunner") if "asi_replay" in methods(groups, FAMILIES[:1], model) else ()
    )
    row = [_curves(drawn, "ScienceWorld 3", FAMILIES[:1], names, measure) for measure in (SCORE, OUTPUT)]
    text = (
        "Skill induction that verifies skills by replay, which breaks the rule of no replay, beside others."
    )
    return drawn.figure("replay_ablation", "Verification by replay", text, [row])


def _tokens(groups: Sequence[Group], model: str, options: str) -> Figure | None:
    drawn = Drawn(groups, model, "main", options)
    row = []
    for title, envs in _places(drawn.groups).items():
        names = _main(groups, envs, model)
        found = {
            measure: {name: drawn.curve(envs, name, measure).last for name in names}
            for measure in ("uncached", "cached", OUTPUT)
        }
        lines = [line for measure, own in found.items() for line in bars_of(measure, own)]
        row.append(Panel(title, "tokens per test episode", "", lines, kind="stack"))
    text = (
        "Tokens per test episode at the last checkpoint: what of the prompts the engine had to compute, what"
        " it had in its prefix cache, and what it wrote."
    )
    return drawn.figure("tokens", "Cached and uncached tokens", text, [row])


def _cache(groups: Sequence[Group], model: str, options: str) -> Figure | None:
    drawn = Drawn(groups, model, "cache", options)
    found = [each for each in cache_effects(groups) if each.setting.model == model]
    known = {(each.setting.method, each.setting.env) for each in found}
    drawn.note(
        (run for each in found for run in each.runs),
        (f"{method} on {env} without prefix cache" for method, env in UNCACHED if (method, env) not in known),
    )
    row = []
    for measure in ("uncached", "cost_usd"):
        own = {
            f"{each.setting.method}, {each.setting.env}": each for each in found if each.measure == measure
        }
        lines = [
            *bars_of("with prefix cache", {name: each.with_cache for name, each in own.items()}),
            *bars_of("without", {name: each.without_cache for name, each in own.items()}),
        ]
        row.append(Panel("", "", LABELS[measure], lines, kind="bars"))
    text = (
        "The same policies on a server with prefix cache and without: prompt tokens that had to be computed,"
        " and USD, of a test episode without sleeps."
    )
    return drawn.figure("prefix_cache", "What the prefix cache saved", text, [row])
