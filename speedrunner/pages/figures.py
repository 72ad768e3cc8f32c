"""Define the figures as data. `drawing` draws them for the page, `printing` for a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count, islice

import msgspec

from speedrunner.pages.panels import (
    LABELS,
    OUTPUT,
    ROLLOUTS,
    SCORE,
    SPEND,
    USD,
    Figure,
    FigureBuilder,
    Line,
    Panel,
    bars_of,
    line_of,
)
from speedrunner.results.conditions import (
    ABLATIONS,
    FAMILIES,
    OFF,
    OURS,
    PLACES,
    REACT,
    ZOMBIES,
    Condition,
    after_third,
    frontier,
    places,
    returned_to_third,
)
from speedrunner.results.means import Spread
from speedrunner.results.paper import played_models
from speedrunner.results.tables import cache_effects

MOST_PLACES, MOST_METHODS = 12, 24
"""Maximum environments of a figure, and methods in addition to the main ones. The tables have all."""

MAIN = (REACT, "opo", "asi", "voyager", OURS)
UNCACHED = (*((name, "babyai") for name in MAIN if name != "voyager"), ("voyager", "crafter"))
"""Methods and environments that are also evaluated without prefix cache."""


def figures(groups: Sequence[Condition], options: str = "") -> list[Figure]:
    """Return all figures of some runs, for each played model: the main ones first.

    Args:
        options: further options of the command that fills a gap.
    """
    made = (
        msgspec.structs.replace(figure, is_experiment=is_experiment)
        for makers in (MAIN_FIGURES, OTHER_FIGURES)
        for model in sorted(played_models(groups))
        for experiment, make, is_experiment in makers
        if (figure := make(FigureBuilder(groups, model, experiment, options))) is not None
    )
    return [*name_apart(made)]


def name_apart(figures: Iterable[Figure]) -> Iterator[Figure]:
    """Add numbers to names that would be equal, because models differ only in characters that names lack."""
    taken = set()
    for figure in figures:
        names = chain([figure.name], (f"{figure.name}_{number}" for number in count(2)))
        name = next(name for name in names if name not in taken)
        taken.add(name)
        yield msgspec.structs.replace(figure, name=name)


def _learning(builder: FigureBuilder) -> Figure | None:
    columns = _places(builder)
    rows = [
        [_curves(builder, title, envs, _main(builder, envs), measure) for title, envs in columns.items()]
        for measure in (SCORE, OUTPUT, USD)
    ]
    text = (
        "Means over test episodes and seeds at each checkpoint, bands one standard deviation over seeds:"
        " score, output tokens and USD per test episode."
    )
    if "ScienceWorld" in columns:
        text += " ScienceWorld is the mean of its two families."
    if len(columns) == MOST_PLACES:
        text += f" At most {MOST_PLACES} environments are drawn; the tables have all."
    return builder.figure("combined_performance", "Performance and cost over training", text, rows)


def _places(builder: FigureBuilder) -> dict[str, tuple[str, ...]]:
    """Return the environments of the main experiment, and others that are not variants of it."""
    found = {
        title: envs
        for title, envs in places(builder.groups).items()
        if title in PLACES or envs[0] not in ZOMBIES.values()
    }
    return dict(islice(found.items(), MOST_PLACES))


def _main(builder: FigureBuilder, envs: Sequence[str]) -> list[str]:
    """Return the main methods for a place, and other methods that were played in all of it and are not their
    variants."""
    played = sorted(set.intersection(*({*builder.methods([env])} for env in envs)))
    known = [name for name in MAIN if name != "voyager" or envs == ("crafter",) or name in played]
    variants = tuple(f"{name}-" for name in (*MAIN, "asi_replay"))
    others = [name for name in played if name not in MAIN and not name.startswith(variants)]
    return [*known, *others[:MOST_METHODS]]


def _curves(
    builder: FigureBuilder, title: str, envs: Sequence[str], names: Iterable[str], measure: str
) -> Panel:
    lines = (builder.line(envs, name, measure) for name in names)
    return Panel(title, ROLLOUTS, LABELS[measure], [line for line in lines if line is not None])


def _pareto(measure: str, builder: FigureBuilder) -> Figure | None:
    row = [
        panel
        for title, envs in _places(builder).items()
        if len((panel := _points(builder, title, envs, _main(builder, envs), measure)).lines) > 1
    ]
    name = "combined_performance_pareto" if measure == USD else "pareto_frontier"
    text = (
        f"Score against {LABELS[measure]}, both at the last checkpoint. The line joins the methods that"
        " no other method beats in both."
    )
    silent = [
        f"{method} in {title} ({amount:g} of a seed's test episodes)"
        for title, envs in _places(builder).items()
        for method in _main(builder, envs)
        if (amount := _count_silent(builder, envs, method))
    ]
    if silent:
        text += f" Not on the line, since episodes without a request have no cost: {', '.join(silent)}."
    return builder.figure(name, f"Score against {LABELS[measure]}", text, [row])


def _points(
    builder: FigureBuilder, title: str, envs: Sequence[str], names: Iterable[str], measure: str
) -> Panel:
    found: dict[str, tuple[Spread, Spread]] = {}
    for name in names:
        cost, score = builder.curve(envs, name, measure), builder.curve(envs, name, SCORE)
        last = max(score.points, default=0)
        if last in cost.points:  # otherwise no episode there sent a request, or no price is known
            found[name] = cost.points[last], score.points[last]
    lines = [
        Line(name, [cost.mean], [score.mean], [score.sd], score.seeds)
        for name, (cost, score) in found.items()
    ]
    costed = (name for name in found if not _count_silent(builder, envs, name))
    best = frontier({name: (found[name][0].mean, found[name][1].mean) for name in costed})
    return Panel(title, LABELS[measure], LABELS[SCORE], lines, kind="points", frontier=best)


def _count_silent(builder: FigureBuilder, envs: Sequence[str], name: str) -> float:
    """Return the mean number of a seed's test episodes without a request, at the last checkpoint."""
    points = builder.curve(envs, name, "silent").points
    return points[max(points)].mean if points else 0.0


def _ablations(builder: FigureBuilder) -> Figure | None:
    played = builder.methods(["babyai"])
    names = (OURS, *ABLATIONS) if {*ABLATIONS} & {*played} else ()
    row = [_curves(builder, "BabyAI", ["babyai"], names, measure) for measure in (SCORE, OUTPUT)]
    text = "SpeedRunner without one of its parts: its code interpreter, its prompt, private skills."
    return builder.figure("babyai_ablations", "Ablations on BabyAI", text, [row])


def _interpreter(builder: FigureBuilder) -> Figure | None:
    names = (OURS, OFF)
    there = {
        title: envs
        for title, envs in places(builder.groups).items()
        if title in ("Crafter", "ScienceWorld", *FAMILIES) and names[1] in builder.methods(envs)
    }
    rows = [
        [_curves(builder, title, envs, names, measure) for title, envs in there.items()]
        for measure in (SCORE, OUTPUT)
    ]
    text = "SpeedRunner with and without its code interpreter."
    return builder.figure("combined_ablations", "The code interpreter", text, rows)


def _zombies(builder: FigureBuilder) -> Figure | None:
    played = {group.condition_name.env for group in builder.groups}
    if not {ZOMBIES["0x"], ZOMBIES["2x"]} & played:
        return None

    def bars(names: Iterable[str], measure: str) -> list[Line]:
        found = {
            name: {times: builder.curve([env], name, measure).last for times, env in ZOMBIES.items()}
            for name in names
        }
        return [bar for name, values in found.items() for bar in bars_of(name, values)]

    lines = bars((REACT, "opo", "voyager", OURS), SCORE)
    over = bars(("voyager", OURS), "combat")
    panel = Panel("Crafter", "zombies", LABELS[SCORE], lines, kind="bars", over=over, over_y=LABELS["combat"])
    text = (
        "Final score without zombies, with the usual number and with twice as many (bars), and the"
        " share of functions about combat in the library (dotted lines)."
    )
    return builder.figure("zombie_sweep", "External randomness", text, [[panel]])


def _shift(builder: FigureBuilder) -> Figure | None:
    third, fourth = FAMILIES
    if not any(f"-from_{third}" in name for name in builder.methods([fourth])):
        return None
    row = []
    for measure in (SCORE, USD):
        lines = []
        for name in (REACT, "opo", "asi", OURS):
            second = name if name == REACT else after_third(name)
            before, after = builder.curve([third], name, measure), builder.curve([fourth], second, measure)
            end = max(before.points, default=0)
            points = [*before.points.items(), *((end + x, found) for x, found in after.points.items())]
            if name != REACT:
                again = builder.curve([third], returned_to_third(name), measure)
                if again.last is not None and points:
                    points.append((points[-1][0] + 50, again.last))
            line = line_of(name, points)
            lines += [line] if line else []
        row.append(Panel("ScienceWorld 3, then 4, then 3 again", ROLLOUTS, LABELS[measure], lines))
    text = (
        "Training on family 3, then on 4 with the policy of 3: at the switch the same policy is evaluated on"
        " both. The last point is the evaluation on 3 at the end, drawn 50 rollouts later."
    )
    return builder.figure("scienceworld_shift", "Distribution shift", text, [row])


def _replay(builder: FigureBuilder) -> Figure | None:
    names = ("asi", "asi_replay", OURS) if "asi_replay" in builder.methods(FAMILIES[:1]) else ()
    row = [_curves(builder, "ScienceWorld 3", FAMILIES[:1], names, measure) for measure in (SCORE, OUTPUT)]
    text = (
        "Skill induction that verifies skills by replay, which breaks the rule of no replay, compared"
        " with the others."
    )
    return builder.figure("replay_ablation", "Verification by replay", text, [row])


def _spend(builder: FigureBuilder) -> Figure | None:
    columns = {
        title: (envs, [name for name in _main(builder, envs) if _trained(builder, envs, name)])
        for title, envs in _places(builder).items()
    }
    rows = [
        [_curves(builder, title, envs, names, measure) for title, (envs, names) in columns.items()]
        for measure in (SPEND, "training_output")
    ]
    text = (
        "USD and output tokens that training has taken after so many rollouts, by all roles, induction"
        " included: means over seeds, bands one standard deviation. ReAct trains nothing. The table"
        " break_even says after how many episodes this spend has paid off."
    )
    return builder.figure("training_spend", "What learning costs", text, rows)


def _trained(builder: FigureBuilder, envs: Sequence[str], name: str) -> bool:
    """Return whether a method has spent tokens on training at a finished checkpoint."""
    spent = builder.curve(envs, name, "training_output").last
    return spent is not None and spent.mean > 0


def _tokens(builder: FigureBuilder) -> Figure | None:
    row = []
    for title, envs in _places(builder).items():
        names = _main(builder, envs)
        found = {
            measure: {name: builder.curve(envs, name, measure).last for name in names}
            for measure in ("uncached", "cached", OUTPUT)
        }
        lines = [line for measure, own in found.items() for line in bars_of(measure, own)]
        row.append(Panel(title, "tokens per test episode", "", lines, kind="stack"))
    text = (
        "Tokens per test episode at the last checkpoint: prompt tokens that the engine computed,"
        " prompt tokens from its prefix cache, and generated tokens."
    )
    return builder.figure("tokens", "Cached and uncached tokens", text, [row])


def _cache(builder: FigureBuilder) -> Figure | None:
    found = [each for each in cache_effects(builder.everything) if each.condition_name.model == builder.model]
    known = {(each.condition_name.method, each.condition_name.env) for each in found}
    builder.note(
        (run for each in found for run in each.runs),
        (f"{method} on {env} without prefix cache" for method, env in UNCACHED if (method, env) not in known),
    )
    row = []
    for measure in ("uncached", "actor_usd"):
        with_cache, without = {}, {}
        for each in found:
            if each.measure == measure:
                name = f"{each.condition_name.method}, {each.condition_name.env}"
                with_cache[name], without[name] = each.with_cache, each.without_cache
        lines = [*bars_of("with prefix cache", with_cache), *bars_of("without", without)]
        row.append(Panel("", "", LABELS[measure], lines, kind="bars"))
    text = (
        "The same policies on a server with and without prefix cache: computed prompt tokens and USD"
        " of a test episode, without sleeps."
    )
    return builder.figure("prefix_cache", "What the prefix cache saved", text, [row])


Maker = Callable[[FigureBuilder], Figure | None]

MAIN_FIGURES: tuple[tuple[str, Maker, bool], ...] = (
    ("main", _learning, True),
    ("main", partial(_pareto, USD), False),
    ("main", partial(_pareto, OUTPUT), False),
)
"""The experiment that each figure shows, how it is made, and `Figure.is_experiment`."""

OTHER_FIGURES: tuple[tuple[str, Maker, bool], ...] = (
    ("ablations", _ablations, True),
    ("interpreter", _interpreter, True),
    ("zombies", _zombies, True),
    ("shift", _shift, True),
    ("replay", _replay, True),
    ("main", _spend, False),
    ("main", _tokens, False),
    ("cache", _cache, False),
)
"""The same for the figures after those of all models."""
