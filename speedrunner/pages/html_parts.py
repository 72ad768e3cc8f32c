"""Parts of pages: templates, links, badges, numbers, tables, and what all pages of a run share.

All parts of HTML escape every text; `render` also writes out the control characters of a whole page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from math import floor, inf, log10
from typing import Any

import jinja2
from markupsafe import Markup, escape

from speedrunner.config.names import identify_condition
from speedrunner.config.schema import InvalidConfig
from speedrunner.pages import shown_code
from speedrunner.plain.console import visible
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.process_notes import caveats
from speedrunner.store.run_data import RunData
from speedrunner.store.run_lock import owner_of

Context = dict[str, Any]

UNKNOWN = "–"

LONG = 160
"""Characters of a text that a page shows whole."""


@cache
def templates() -> jinja2.Environment:
    """Return the templates of all pages. All callers share one environment, so each is compiled once."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals |= {"badge": badge, "fold": fold}
    filters = ["count_calls", "count_tokens", "cut", "describe_edit", "describe_result", "highlight"]
    filters += ["limit_calls", "list_texts", "write_call"]
    environment.filters |= {name: getattr(shown_code, name) for name in filters}
    environment.filters |= {"turn_link": turn_link, "show_number": show_number}
    return environment


def render(template: str, context: Context) -> str:
    """Return a page, in which control characters of all texts are escaped."""
    return visible(templates().get_template(template).render(context))


def link(address: str, text: object) -> Markup:
    """Return a link."""
    return Markup('<a href="{}">{}</a>').format(address, text)


def element(tag: str, kind: str, text: str) -> Markup:
    """Return a text in an element of a class."""
    return Markup('<{0} class="{1}">{2}</{0}>').format(tag, kind, text)


def fold(text: str) -> Markup:
    """Return a text of which a page shows two lines and a link to the rest, if it is long."""
    if len(text) <= LONG:
        return escape(text)
    long = '<details class="long"><summary><span>{}</span> <b>more</b></summary></details>'
    return Markup(long).format(text)


def badge(kind: str, text: str) -> Markup:
    """Return a text in a colored frame: `good`, `bad`, `warn` or `plain`."""
    return element("span", f"badge {kind}", text)


class Share(float):
    """A share of a whole, which pages show in percent."""


def count_decimals(values: Iterable[float], column: str = "") -> int:
    """Return the decimals that show the largest value with four digits, at most three if it is not in USD."""
    largest = max(map(abs, values), default=0.0)
    if "usd" not in column.lower() and not 0 < largest < 0.1:
        largest = max(largest, 1.0)
    return max(3 - floor(log10(largest)), 0) if 0 < largest < inf else 0


def show_number(value: float | None, column: str = "", decimals: int | None = None) -> str:
    """Return a number with commas between thousands, and `$` if the column is of USD; a `Share` in percent.

    Args:
        decimals: `None`: those of `count_decimals`, so four digits.
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, Share):
        return f"{value:.0%}"
    if decimals is None:
        decimals = count_decimals([value], column)
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.{decimals}f}"
    return f"${text}" if "usd" in column.lower() else text


def show_cell(cell: Any, column: str = "", decimals: int | None = None) -> str:
    """Return a cell as text; markup stays."""
    if cell is None or isinstance(cell, int | float):
        return show_number(cell, column, decimals)
    return cell if isinstance(cell, Markup) else str(cell)


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, label: str, kind: str = ""
) -> Markup:
    """Return a table for a page, which scrolls if it is wider than its place. Columns of numbers are aligned
    to the right, and have equal decimals.

    Args:
        rows: cells: texts, numbers, `Markup`, or `None` if unknown.
        label: what the table shows, for screen readers.
        kind: classes of the table in the stylesheet.
    """
    kinds, decimals = [], []
    for place, column in enumerate(columns):
        known = [row[place] for row in rows if row[place] is not None]
        is_number = bool(known) and all(isinstance(cell, int | float) for cell in known)
        kinds.append("number" if is_number else "text")
        decimals.append(count_decimals(known, column) if is_number else None)
    heads = zip(kinds, (column.replace("_", " ") for column in columns), strict=True)
    shown = (zip(kinds, map(show_cell, row, columns, decimals), strict=True) for row in rows)
    macros: Any = templates().get_template("parts.jinja").module
    return Markup(macros.table(label, kind, heads, shown))


TURNS = 100
"""Turns of an episode on one page."""


class NotFound(Exception):
    """The page does not exist."""


def page_part(items: Sequence[Any], page: int) -> Context:
    """Return one page of a list of turns for its template.

    Returns:
        `shown`: the page's items; `first`: the number of the first one, from 1; `count`: the number of all
        items; `page`, `pages`.

    Raises `NotFound`: the list has fewer pages.
    """
    pages = max(-(-len(items) // TURNS), 1)
    if not 1 <= page <= pages:
        raise NotFound(f"it has {pages} pages")
    first = (page - 1) * TURNS
    return {
        "shown": items[first : first + TURNS],
        "first": first + 1,
        "count": len(items),
        "page": page,
        "pages": pages,
    }


@lru_cache(maxsize=1)
def heading(run: RunData) -> Context:
    """Return the heading of all pages of a run."""
    treatment = None
    try:
        condition = identify_condition(run.settings)
        treatment = condition.treatment
        named = ", ".join([*condition.names, f"seed {run.settings.run.seed}"])
    except InvalidConfig as error:
        named = str(error)
    return {
        "name": run.path.name,
        "condition_name": named,
        "treatment": treatment,
        "status": _status(run),
        "caveats": caveats([run]),
    }


def _status(run: RunData) -> Context:
    """Return the text of a run's badge, its kind, and who plays it or why it is unknown."""
    if owner := owner_of(run.path / "lock"):
        return {"kind": "plain", "text": "running", "note": f"played by {owner}"}
    try:
        done = Counter(row.checkpoint if row.phase == "test" else None for row in run.rows)
        plan = run.settings.run
        # Without evaluations, the last sleep is the end; otherwise the last evaluation needs all training.
        sleeps = plan.sleeps in run.policies.versions() and done[None] >= plan.rollouts
        is_finished = all(done[point] >= plan.test_episodes for point in run.checkpoints)
    except DAMAGED as error:
        return {"kind": "bad", "text": "damaged", "note": damage(run.path, error)}
    if is_finished and (run.checkpoints or sleeps):
        return {"kind": "good", "text": "finished", "note": ""}
    state = ("stopped", "unfinished") if run.rows else ("not started", "no finished episode")
    return {"kind": "warn", "text": state[0], "note": f"{state[1]}, no process"}


def count_terminations(terminations: Iterable[str]) -> str:
    """Return the numbers of episodes by termination as text, the most frequent first."""
    counts = Counter(terminations).most_common()
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts) or "none yet"


def turn_link(turn: int) -> str:
    """Return the address of a turn, from 1, next to the pages of its episode or sleep."""
    return f"{(turn - 1) // TURNS + 1}.html#turn-{turn}"
