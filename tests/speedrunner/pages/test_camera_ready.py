"""Tables and figures for one column of a paper: rounding, captions, fonts, and markers within the page."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from speedrunner.config.names import condition_name
from speedrunner.experiments.grid import grid_of
from speedrunner.pages.camera_ready import METHODS, camera_ready, round_together, table_text
from speedrunner.pages.panels import LABELS, Figure, Line, Panel
from speedrunner.store.files import write_folder
from tests.speedrunner.pages.panel_samples import BARS, ODD

POINTS = [0.0, 50.0, 100.0, 150.0, 200.0]
NAMES = ("react", "speedrunner", "speedrunner-visibility_all_public", "asi (run.sleep_every=20)")
MEASURES = (("score", 1.0), ("output", 12345.0), ("cost_usd", 0.0321))
"""Each measure with its largest value."""


def panel(place: str, measure: str, most: float, names: tuple[str, ...] = NAMES) -> Panel:
    lines = [
        Line(name, [*POINTS], [most / (1 + number + at) for at in range(5)][::-1], [most / 40] * 5, 3)
        for number, name in enumerate(names)
    ]
    return Panel(place, "training rollouts", LABELS[measure], lines)


def experiment(*places: str) -> Figure:
    rows = [[panel(place, measure, most) for place in places] for measure, most in MEASURES]
    title = "Performance and cost over training, a-model-with-a-name-of-some-length-2048-instruct"
    return Figure("main_model", title, "", rows, [], "", is_experiment=True)


def streams(pdf: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the dictionary and the content of each compressed stream."""
    for head, content in re.findall(rb"(?s)obj\n<<(.*?)>>\nstream\n(.*?)\nendstream", pdf):
        if b"FlateDecode" in head:
            yield head, zlib.decompressobj().decompress(content)


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


def test_an_environment_beyond_the_fourth_is_in_another_table_and_figure() -> None:
    assert [*camera_ready(experiment(*"abcde"))] == [
        f"{name}.{kind}" for name in ("main_model", "main_model_2") for kind in ("tex", "pdf")
    ]
    assert camera_ready(replace(experiment("f"), is_experiment=False)) == {}


def test_the_figure_is_a_column_wide_and_embeds_its_fonts() -> None:
    pdf = camera_ready(experiment("Crafter", "BabyAI"))["main_model.pdf"]
    (width,) = re.findall(rb"/MediaBox \[ 0 0 (\S+) ", pdf)
    assert float(width) == 3.25 * 72
    fonts = re.findall(rb"/Type /Font\b.*?/Subtype /(\w+)", pdf, re.DOTALL)
    assert set(fonts) == {b"Type0", b"CIDFontType2"}
    assert pdf.count(b"/FontFile2") == fonts.count(b"CIDFontType2")


def test_no_marker_is_clipped_or_leaves_the_page() -> None:
    pdf = camera_ready(experiment("Crafter", "BabyAI"))["main_model.pdf"]
    width, height = map(float, re.findall(rb"/MediaBox \[ 0 0 (\S+) (\S+) \]", pdf)[0])
    boxes = [re.search(rb"/BBox \[ ([^\]]*)\]", head) for head, _ in streams(pdf)]
    largest = max(abs(float(end)) for box in boxes if box for end in box[1].split())
    (page,) = (content for _, content in streams(pdf) if b" Do\n" in content)
    marks = 0
    for group in re.findall(rb"(?s)\nq\n((?:1 0 0 1 \S+ \S+ cm /M\d+ Do\n)+)Q", page):
        x = y = 0.0
        for right, up in re.findall(rb"1 0 0 1 (\S+) (\S+) cm", group):  # each move starts at the last mark
            x, y, marks = x + float(right), y + float(up), marks + 1
            assert largest < x < width - largest
            assert largest < y < height - largest
    curves = 2 * 2 * len(NAMES) * len(POINTS)
    assert marks >= curves
    # A clipped path begins after its clip rectangle: `x y w h re W n`.
    assert not re.search(rb" re W n(?:(?!\nQ).)*/M\d+ Do", page, re.DOTALL)


def test_every_checkpoint_has_a_tick() -> None:
    one = replace(experiment(), rows=[[panel("BabyAI", "score", 1.0, ("react",))]])
    pdf = camera_ready(one)["main_model.pdf"]
    (page,) = (content for _, content in streams(pdf) if b" Do\n" in content)
    (group,) = re.findall(rb"(?s)\nq\n((?:1 0 0 1 \S+ \S+ cm /M\d+ Do\n){5})Q", page)
    places, x = set(), 0.0
    for right in re.findall(rb"1 0 0 1 (\S+) \S+ cm", group):
        x += float(right)
        places.add(round(x, 2))
    lines = re.findall(rb"\n(\S+) (\S+) m\n(\S+) (\S+) l\n", page)
    ticks = {
        round(float(a), 2) for a, top, b, bottom in lines if a == b and abs(float(top) - float(bottom)) == 2
    }
    assert len(places) == len(POINTS)
    assert ticks == places


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_table_and_figure_fit_a_column_of_an_article(tmp_path: Path) -> None:
    write_folder(tmp_path, camera_ready(experiment("Crafter", "BabyAI")))
    (tmp_path / "paper.tex").write_text(r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,graphicx}
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
