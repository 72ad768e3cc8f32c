"""The figures: what is drawn where, as data. `drawing` draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from speedrunner.statistics.groups import FAMILIES, Group, Spread
from speedrunner.statistics.series import PLACES, Curve, curve, frontier, methods, places

MAIN = ("react", "opo", "asi", "voyager", "speedrunner")
ABLATIONS = (
    "speedrunner-interpreter_off",
    "speedrunner-prompt_asi_style",
    "speedrunner-visibility_all_public",
)
ZOMBIES = {"0x": "crafter-zombie_frequency0", "1x": "crafter", "2x": "crafter-zombie_frequency2"}

SCORE, CALLS, OUTPUT, USD = "score", "llm_calls", "output", "cost_usd"
LABELS = {
    SCORE: "score",
    CALLS: "LLM calls per episode",
    OUTPUT: "output tokens per episode",
    USD: "USD per episode",
    "uncached": "uncached tokens per episode",
    "cached": "cached tokens per episode",
    "combat_percent": "functions about combat (%)",
}
ROLLOUTS = "training rollouts"


class Line(msgspec.Struct, frozen=True):
    """One line, bar or point of a panel.

    Attributes:
        name: a method, which has a colour, a dash and a marker of its own.
        x: numbers, or names of bars.
        sd: over seeds; `None` of one seed.
    """

    name: str
    x: list[float | str]
    y: list[float]
    sd: list[float | None]
    seeds: int


class Panel(msgspec.Struct, frozen=True):
    """One pair of axes.

    Attributes:
        kind: lines over rollouts, bars beside each other, stacked bars, or points with the frontier.
        over: lines of a second measure over bars; its axis stands to the right.
        frontier: names of the points that no other one beats.
    """

    title: str
    x: str
    y: str
    lines: list[Line]
    kind: str = "lines"
    over: list[Line] = []
    over_y: str = ""
    frontier: list[str] = []


class Figure(msgspec.Struct, frozen=True):
    """One figure.

    Attributes:
        name: of its files, and its anchor on the page; the paper's label where it has one.
        rows: of panels.
        runs: that it stands on.
        missing: what is not there, and the command that fills it.
    """

    name: str
    title: str
    text: str
    rows: list[list[Panel]]
    runs: list[str]
    missing: str


class _Drawn:
    """Collects the runs and the gaps of a figure while its panels are made.

    Args:
        experiment: that fills gaps.
        options: what its command has beside, such as ` scale=pilot`.
    """

    def __init__(self, groups: Sequence[Group], model: str, experiment: str, options: str) -> None:
        self._groups = groups
        self._model = model
        self._command = f"speedrunner sweep experiment={experiment} model={model.partition('+')[0]}{options}"
        self._runs: dict[str, None] = {}
        self._gaps: dict[str, None] = {}

    def curve(self, envs: Sequence[str], method: str, measure: str) -> Curve:
        """One setting; where it was not played, that is noted."""
        found = curve(self._groups, envs, method, self._model, measure)
        self._runs |= dict.fromkeys(found.runs)
        if not found.points:
            self._gaps[f"{method} on {' and '.join(envs)}"] = None
        return found

    def line(self, envs: Sequence[str], method: str, measure: str) -> Line | None:
        """The same over its checkpoints."""
        return _line(method, self.curve(envs, method, measure).points)

    def figure(self, name: str, title: str, text: str, rows: Iterable[Iterable[Panel]]) -> Figure:
        """The whole, of panels that have something in them."""
        kept = [[panel for panel in row if panel.lines] for row in rows]
        gaps = f"not played: {', '.join(self._gaps)}: {self._command}" if self._gaps else ""
        return Figure(name, title, text, [row for row in kept if row], [*self._runs], gaps)


def figures(groups: Sequence[Group], options: str = "") -> list[Figure]:
    """All figures of some runs, the paper's first, for each model that was played.

    Args:
        options: what the command that fills a gap has beside experiment and model.
    """
    models = sorted({group.setting.model for group in groups if _cached(group)})
    found: list[Figure] = []
    for model in models:
        found.append(_learning(groups, model, options))
    for measure in (USD, OUTPUT):
        found.append(_pareto(groups, models, measure, options))
    for model in models:
        others = (_ablations, _interpreter, _zombies, _shift, _replay)
        found += [figure for make in others if (figure := make(groups, model, options)).rows]
        found.append(_tokens(groups, model, options))
    return [figure for figure in found if figure.rows]


def _cached(group: Group) -> bool:
    return group.runs[0].config.model.prefix_caching is not False


def _named(text: str, model: str) -> str:
    return f"{text}_{''.join(each if each.isalnum() else '_' for each in model)}"


def _learning(groups: Sequence[Group], model: str, options: str) -> Figure:
    drawn = _Drawn(groups, model, "main", options)
    columns = places([group for group in groups if group.setting.model == model])
    rows = [
        [
            _curves(drawn, title, envs, _main(groups, envs, model), measure)
            for title, envs in columns.items()
            if envs[0] not in ZOMBIES.values() or title in PLACES
        ]
        for measure in (SCORE, OUTPUT, USD)
    ]
    text = (
        "Means over test episodes and seeds at each checkpoint, bands one standard deviation over seeds:"
        " score, output tokens and USD per test episode. ScienceWorld is the mean of its two families."
    )
    title = f"Performance and cost over training, {model}"
    return drawn.figure(_named("combined_performance", model), title, text, rows)


def _main(groups: Sequence[Group], envs: Sequence[str], model: str) -> list[str]:
    """The main methods that a place should have, and any other one that is none of their variants."""
    known = [name for name in MAIN if name != "voyager" or envs == ("crafter",)]
    own = [
        name for name in methods(groups, envs, model) if name.partition("-")[0] not in (*MAIN, "asi_replay")
    ]
    return [*known, *own]


def _curves(drawn: _Drawn, title: str, envs: Sequence[str], names: Iterable[str], measure: str) -> Panel:
    lines = (drawn.line(envs, name, measure) for name in names)
    return Panel(title, ROLLOUTS, LABELS[measure], [line for line in lines if line is not None])


def _line(name: str, points: Mapping[int, Spread]) -> Line | None:
    if not points:
        return None
    values = points.values()
    return Line(
        name,
        [*points],
        [each.mean for each in values],
        [each.sd for each in values],
        min(each.seeds for each in values),
    )


def _pareto(groups: Sequence[Group], models: Sequence[str], measure: str, options: str) -> Figure:
    drawn = _Drawn(groups, models[0] if models else "", "models", options)
    rows: list[list[Panel]] = []
    for model in models:
        each = _Drawn(groups, model, "main", options)
        row = []
        for title, envs in places([group for group in groups if group.setting.model == model]).items():
            row.append(_points(each, f"{title}, {model}", envs, _main(groups, envs, model), measure))
        rows.append(row)
        drawn._runs |= each._runs
        drawn._gaps |= each._gaps
    name = "combined_performance_pareto" if measure == USD else "pareto_frontier"
    text = (
        f"Score against {LABELS[measure]}, both at the last checkpoint. The line joins what no other method"
        " beats in both."
    )
    return drawn.figure(name, f"Score against {LABELS[measure]}", text, rows)


def _points(drawn: _Drawn, title: str, envs: Sequence[str], names: Iterable[str], measure: str) -> Panel:
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


def _ablations(groups: Sequence[Group], model: str, options: str) -> Figure:
    drawn = _Drawn(groups, model, "ablations", options)
    played = methods(groups, ["babyai"], model)
    names = ("speedrunner", *ABLATIONS) if {*ABLATIONS} & {*played} else ()
    row = [_curves(drawn, "BabyAI", ["babyai"], names, measure) for measure in (SCORE, OUTPUT)]
    text = "SpeedRunner with one part taken away: its code interpreter, its prompt, private skills."
    return drawn.figure(_named("babyai_ablations", model), f"Ablations on BabyAI, {model}", text, [row])


def _interpreter(groups: Sequence[Group], model: str, options: str) -> Figure:
    drawn = _Drawn(groups, model, "interpreter", options)
    names = ("speedrunner", ABLATIONS[0])
    there = {
        title: envs
        for title, envs in places([group for group in groups if group.setting.model == model]).items()
        if title in ("Crafter", "ScienceWorld", *FAMILIES) and names[1] in methods(groups, envs, model)
    }
    rows = [
        [_curves(drawn, title, envs, names, measure) for title, envs in there.items()]
        for measure in (SCORE, OUTPUT)
    ]
    text = "SpeedRunner with its code interpreter and without."
    return drawn.figure(_named("combined_ablations", model), f"The code interpreter, {model}", text, rows)


def _zombies(groups: Sequence[Group], model: str, options: str) -> Figure:
    drawn = _Drawn(groups, model, "zombies", options)
    played = {group.setting.env for group in groups if group.setting.model == model}
    if not {ZOMBIES["0x"], ZOMBIES["2x"]} & played:
        return drawn.figure("", "", "", [])
    lines, over = [], []
    for name in ("react", "opo", "voyager", "speedrunner"):
        found = {times: drawn.curve([env], name, SCORE).last for times, env in ZOMBIES.items()}
        combat = {times: drawn.curve([env], name, "combat_percent").last for times, env in ZOMBIES.items()}
        lines += [*_bars(name, found)]
        over += [*_bars(name, combat)] if name in ("voyager", "speedrunner") else []
    panel = Panel(
        "Crafter", "zombies", LABELS[SCORE], lines, kind="bars", over=over, over_y=LABELS["combat_percent"]
    )
    text = (
        "Final score with no zombies, as many as usual and twice as many (bars), and the share of functions"
        " about combat in the library (dotted lines)."
    )
    return drawn.figure(_named("zombie_sweep", model), f"External randomness, {model}", text, [[panel]])


def _bars(name: str, found: Mapping[str, Spread | None]) -> Iterator[Line]:
    known = {key: each for key, each in found.items() if each is not None}
    if known:
        values = known.values()
        seeds = min(each.seeds for each in values)
        yield Line(name, [*known], [each.mean for each in values], [each.sd for each in values], seeds)


def _shift(groups: Sequence[Group], model: str, options: str) -> Figure:
    drawn = _Drawn(groups, model, "shift", options)
    third, fourth = FAMILIES
    if not any(f"-from_{third}" in name for name in methods(groups, [fourth], model)):
        return drawn.figure("", "", "", [])
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
            line = _line(name, points)
            lines += [line] if line else []
        row.append(Panel("ScienceWorld 3, then 4, then 3 again", ROLLOUTS, LABELS[measure], lines))
    text = (
        "Training on family 3, then on 4 with what was learnt; the last point is the evaluation on 3 at the"
        " end, drawn 50 rollouts later."
    )
    return drawn.figure(_named("scienceworld_shift", model), f"Distribution shift, {model}", text, [row])


def _replay(groups: Sequence[Group], model: str, options: str) -> Figure:
    drawn = _Drawn(groups, model, "replay", options)
    names = (
        ("asi", "asi_replay", "speedrunner") if "asi_replay" in methods(groups, FAMILIES[:1], model) else ()
    )
    row = [_curves(drawn, "ScienceWorld 3", FAMILIES[:1], names, measure) for measure in (SCORE, OUTPUT)]
    text = (
        "Skill induction that verifies skills by replay, which breaks the rule of no replay, beside others."
    )
    return drawn.figure(_named("replay_ablation", model), f"Verification by replay, {model}", text, [row])


def _tokens(groups: Sequence[Group], model: str, options: str) -> Figure:
    drawn = _Drawn(groups, model, "main", options)
    row = []
    for title, envs in places([group for group in groups if group.setting.model == model]).items():
        names = methods(groups, envs, model)
        found = {
            measure: {name: drawn.curve(envs, name, measure).last for name in names}
            for measure in ("uncached", "cached", OUTPUT)
        }
        lines = [line for measure, own in found.items() for line in _bars(measure, own)]
        row.append(Panel(title, "", "tokens per test episode", lines, kind="stack"))
    text = (
        "Tokens per test episode at the last checkpoint: what of the prompts the engine had to compute, what"
        " it had in its prefix cache, and what it wrote."
    )
    return drawn.figure(_named("tokens", model), f"Cached and uncached tokens, {model}", text, [row])
