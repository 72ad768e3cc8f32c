"""Tables and figures for one column of a paper."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from speedrunner.config.names import condition_name
from speedrunner.experiments.grid import grid_of
from speedrunner.pages.camera_ready import METHODS, round_together, table_text
from speedrunner.pages.figure_files import draw
from speedrunner.pages.figures import LABELS, Figure, Panel, Series
from speedrunner.results.means import Spread
from speedrunner.store.files import write_folder

ODD = "$x^{ <b>&\x1b[31m_\uffff"
"""A name with what means something to HTML, XML, LaTeX and terminals, and a character that XML forbids."""

BARS = Panel(
    "Crafter",
    "zombies",
    "score",
    [Series("react", ["0x", "1x"], [Spread(0.1, None, 1), Spread(0.2, 0.1, 1)])],
    kind="bars",
)

POINTS = [0.0, 50.0, 100.0, 150.0, 200.0]
NAMES = ("react", "speedrunner", "speedrunner-visibility_all_public", "asi (run.sleep_every=20)")
MEASURES = (("score", 1.0), ("output", 12345.0), ("cost_usd", 0.0321))
"""Each measure with its largest value."""


def panel(place: str, measure: str, most: float, names: tuple[str, ...] = NAMES) -> Panel:
    series = [
        Series(name, [*POINTS], [Spread(most / (1 + number + at), most / 40, 3) for at in range(5)][::-1])
        for number, name in enumerate(names)
    ]
    return Panel(place, "training rollouts", LABELS[measure], series)


def experiment(*places: str) -> Figure:
    rows = [[panel(place, measure, most) for place in places] for measure, most in MEASURES]
    title = "Performance and cost over training, a-model-with-a-name-of-some-length-2048-instruct"
    return Figure("main_model", title, "", rows, [], is_experiment=True)


@pytest.mark.parametrize(
    ("mean", "sd", "expected"),
    [
        (0.8123, 0.0312, ("0.812", "0.031")),
        (0.8123, 0.0996, ("0.81", "0.10")),
        (33612.0, 6934.0, ("33600", "6900")),
        (2550.0, 33.0, ("2550", "33")),
        (0.00021, 0.3, ("0.00", "0.30")),
        (-0.001, 0.3, ("0.00", "0.30")),
        (0.8123, 1e-9, ("0.81230", "0.00000")),
        (0.8123, 0.0, ("0.812", "0.000")),
        (12345.0, None, ("12300", None)),
        (0.0, None, ("0", None)),
        (0.0, 0.0, ("0", "0")),
    ],
)
def test_the_deviation_chooses_the_digits(
    mean: float, sd: float | None, expected: tuple[str, str | None]
) -> None:
    assert round_together(mean, sd) == expected


def test_the_table_has_a_row_for_each_method_and_a_column_for_each_measure(
    golden: Callable[[str, str], None],
) -> None:
    texts = [
        table_text(experiment("Crafter", "BabyAI")),
        table_text(replace(experiment("BabyAI"), rows=[[panel("BabyAI", "score", 1.0)]])),
        table_text(replace(experiment(), title="External randomness", rows=[[BARS]])),
        table_text(replace(experiment(), title=ODD, rows=[[panel(ODD, "score", 1e300, (ODD, "a & b"))]])),
    ]
    golden("camera_ready.txt", "\n".join(texts))


def test_every_named_method_is_one_of_an_experiment() -> None:
    runs = [run for name in ("main", "ablations", "replay") for run in grid_of([f"experiment={name}"]).runs()]
    assert {condition_name(run.config).method for run in runs} == METHODS.keys()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_table_and_figure_fit_a_column_of_an_article(tmp_path: Path) -> None:
    files = draw(experiment("Crafter", "BabyAI"))
    papers = {Path(path).name: content for path, content in files.items() if path.startswith("paper/")}
    write_folder(tmp_path, papers)
    (tmp_path / "paper.tex").write_text(r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,adjustbox,graphicx}
\setlength{\columnsep}{0.25in}\setlength{\textwidth}{6.75in}
\begin{document}
\input{main_model}
\begin{figure}[t]\includegraphics{main_model}\caption{A figure.}\end{figure}
Text.
\end{document}
""")
    compiled = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stdout
    assert "Overfull" not in compiled.stdout
    assert "Output written on paper.pdf (1 page" in compiled.stdout
