"""The tables of the paper's claims: one row for each claim, and one for each of its comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from speedrunner.results.claims import Judged, JudgedComparison
from speedrunner.results.inference import CONFIDENCE
from speedrunner.results.writing import Cell, Table, latex

CLAIMS = "claims"
COMPARISONS = "claim_comparisons"

COLUMNS = (
    *("claim", "place", "model", "text", "verdict", "reason", "paper"),
    *("comparison", "measured", "low", "high", "seeds", "supported", "of", "has_runs", "missing", "command"),
)


def claim_tables(judged: Sequence[Judged]) -> list[Table]:
    """Return the verdicts on the paper's claims, and the comparisons behind them."""
    text = (
        "The paper's claims, judged by our runs at the last checkpoint. A claim is supported if the interval"
        " of each of its comparisons is in the claimed range, contradicted if that of one is outside, and"
        f" undecided otherwise. Intervals ({CONFIDENCE:.0%}) contain those of a bootstrap over seeds and"
        " episodes and of Student's t over seeds. They are not corrected for the number of claims. The"
        " measured value is that of the comparison that explains the verdict; claim_comparisons has all."
    )
    shown = [
        [
            *map(latex, (each.claim.text, each.claim.place, each.model, each.claim.paper)),
            _latex_interval(each.deciding),
            latex(each.deciding.seeds),
            latex(each.verdict),
        ]
        for each in judged
    ]
    heads = [*map(latex, ("claim", "place", "model", "paper", "ours", "seeds", "verdict"))]
    claims = Table(CLAIMS, text, COLUMNS, [_claim_row(each) for each in judged], shown=(heads, shown))
    return [claims, _comparisons(judged)]


def count_verdicts(judged: Sequence[Judged]) -> str:
    """Return the number of claims with each verdict, as text; claims without runs are counted apart."""
    counts = Counter(each.verdict if each.has_runs else "without runs" for each in judged)
    order = ("supported", "contradicted", "undecided", "without runs")
    return ", ".join(f"{counts[name]} {name}" for name in order)


def _claim_row(each: Judged) -> tuple[Cell, ...]:
    verdicts = Counter(compared.verdict for compared in each.compared)
    deciding = each.deciding
    return (
        *(each.claim.name, each.claim.place, each.model, each.claim.text, each.verdict, deciding.reason),
        *(each.claim.paper, deciding.comparison.text, deciding.value, deciding.low, deciding.high),
        *(deciding.seeds, verdicts["supported"], len(each.compared)),
        *(int(each.has_runs), each.missing, "; ".join(each.commands)),
    )


def _comparisons(judged: Sequence[Judged]) -> Table:
    columns = ("claim", "model", "comparison", "range_low", "range_high", "measured", "low", "high", "seeds",
               "verdict", "reason")  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            *(each.claim.name, own.comparison.model or each.model, own.comparison.text),
            *(own.comparison.low, own.comparison.high, own.value, own.low, own.high, own.seeds),
            *(own.verdict, own.reason),
        )
        for each in judged
        for own in each.compared
        if own.runs
    ]
    text = (
        "The comparisons behind the paper's claims: the claimed range, our value with its interval, and the"
        " verdict. Comparisons without a run are left out."
    )
    return Table(COMPARISONS, text, columns, rows)


def _latex_interval(each: JudgedComparison) -> str:
    if each.value is None or each.low is None:
        return latex(each.value)
    return f"{latex(each.value)} ({latex(each.low)} to {latex(each.high)})"
