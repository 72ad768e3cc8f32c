"""Figures of stored libraries: contributions of skills, and libraries played by other models and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from speedrunner.pages.number_texts import exact_number
from speedrunner.pages.panels import LETTERS, Figure, Line, Panel
from speedrunner.results.attribution import CHANGES, EvaluatedPolicy, rate_skill, share_skills
from speedrunner.results.inference import CONFIDENCE, Estimate
from speedrunner.results.transfer import Player, Transfer

SHOWN = {
    "score": "score",
    "llm_calls": "LLM calls",
    "output": "output tokens",
    "usd": "USD",
}
"""Metrics of the figure `attribution`, with their names."""

COMMAND = "speedrunner sweep experiment=transfer"


def attribution_figures(subjects: Sequence[EvaluatedPolicy]) -> list[Figure]:
    """Return a figure for each policy: the contribution of each skill, with intervals."""
    figures = []
    for subject in subjects:
        panels = [panel for metric in SHOWN if (panel := _attribution_panel(subject, metric)).lines]
        if not panels:
            continue
        name = subject.condition_name
        text = (
            "Contribution of each skill per test episode: the whole library minus the library without it"
            " (hidden from the actor, or removed), and its Shapley value if enough sets of skills were"
            " played."
            f" Lines: {CONFIDENCE:.0%} intervals over test tasks. Negative calls, tokens and USD are savings."
        )
        title = f"Contribution of skills: {name.method} on {name.env}, {name.model}"
        rows = [panels[place : place + 2] for place in range(0, len(panels), 2)]
        stem = _file_name("attribution", name.env, name.method, name.model)
        figures.append(Figure(stem, title, text, rows, subject.runs, {}))
    return figures


def transfer_figures(transfers: Sequence[Transfer], options: str) -> list[Figure]:
    """Return a figure for each environment and method: matrices of libraries and players.

    Args:
        options: further options of the command that fills a gap.
    """
    figures = []
    for env, method in dict.fromkeys((each.env, each.method) for each in transfers):
        own = [each for each in transfers if (each.env, each.method) == (env, method)]
        panels = [*_matrices(own)]
        runs = dict.fromkeys(run for each in own for run in each.runs)
        is_whole = all(len(line.x) == len(panel.lines) for panel in panels for line in panel.lines)
        text = (
            "Rows: who learned the library. Columns: who plays it, without training. Cells: score, output"
            " tokens per test episode, and number of test episodes."
        )
        figures.append(
            Figure(
                _file_name("transfer", env, method),
                f"Libraries of {method} played by others, {env}",
                text,
                [[panel] for panel in panels],
                [*runs],
                {} if is_whole else {f"{COMMAND} env={env.partition('-')[0]}{options}": ["matrix cells"]},
            )
        )
    return figures


def _attribution_panel(subject: EvaluatedPolicy, metric: str) -> Panel:
    found: dict[str, dict[str, Estimate]] = {}
    for part in subject.parts:
        change, names = part
        _, added = rate_skill(subject.pair(part, metric))
        if len(names) == 1 and added is not None:
            found.setdefault(CHANGES[change], {})[next(iter(names))] = added
    shares = share_skills(subject, metric)
    if shares:
        found["Shapley value"] = {skill: around for skill, (_, around) in shares.items()}
    label = SHOWN[metric]
    if metric == "usd" and not any(each.mean for own in found.values() for each in own.values()):
        found = {}  # no price is known
    lines = [_dots(name, dict(sorted(own.items()))) for name, own in found.items()]
    return Panel("", f"{label} per episode", "", lines, kind="dots")


def _dots(name: str, found: dict[str, Estimate]) -> Line:
    values = found.values()
    means, ends = [each.mean for each in values], [each.ends for each in values]
    return Line(name, [*found], means, [None] * len(found), 1, ends=ends)


def _matrices(transfers: Sequence[Transfer]) -> Iterator[Panel]:
    """Yield the matrix of models (equal seeds), and each model's matrix of seeds if it has several."""
    same_seed = [each for each in transfers if each.library.seed == each.player.seed]
    models = _matrix("models, same seed", same_seed, lambda each: each.model)
    if models.lines:
        yield models
    for model in sorted({each.library.model for each in transfers}):
        own = [each for each in transfers if {each.library.model, each.player.model} == {model}]
        if len({each.library.seed for each in own} | {each.player.seed for each in own}) > 1:
            yield _matrix(f"seeds, {model}", own, lambda each: f"seed {each.seed}")


def _matrix(title: str, transfers: Sequence[Transfer], label: Callable[[Player], str]) -> Panel:
    """Return a matrix; its cells are means over evaluations with the same labels."""
    cells: dict[str, dict[str, list[Transfer]]] = {}
    for each in transfers:
        cells.setdefault(label(each.library), {}).setdefault(label(each.player), []).append(each)
    lines = []
    for name, row in sorted(cells.items()):
        ordered = dict(sorted(row.items()))
        scores = [fmean(each.score.mean for each in own) for own in ordered.values()]
        lines.append(
            Line(name, [*ordered], scores, [None] * len(row), 1, notes=[*map(_note, ordered.values())])
        )
    return Panel(title, "player", "library", lines, kind="matrix")


def _note(transfers: Sequence[Transfer]) -> str:
    outputs = [each.output.mean for each in transfers if each.output is not None]
    tokens = f"{exact_number(round(fmean(outputs)), '')} tokens" if outputs else "no request"
    return f"{tokens}\nn = {sum(each.episodes for each in transfers)}"


def _file_name(*parts: str) -> str:
    """Return a file's name without special characters; the last characters differ between runs."""
    kept = [parts[0], *(part[-LETTERS:] for part in parts[1:])]
    return "".join(each if each.isalnum() else "_" for each in "_".join(kept))
