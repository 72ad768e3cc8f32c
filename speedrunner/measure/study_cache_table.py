"""The cache study as people read it."""

from __future__ import annotations

from speedrunner.measure.study_cache import RATIOS, CacheStudy, MethodRows, PassRow

NOT_MEASURED = "not measured"

_ROW = "{:32}{:>16}{:>16}{:>14}"


def study_text(study: CacheStudy) -> str:
    """A table per method, and what part of each one's prompts was cached."""
    many = ", ".join(str(n) for n in dict.fromkeys(study.in_flight))
    lines = [f"{study.model}: recorded requests played again, at most {many} episodes in flight"]
    for method in study.methods:
        lines += ["", *_method(method)]
    if not any(one.usd for method in study.methods for one in method.passes):
        lines.append(f"USD: {NOT_MEASURED}: the price list is all zeros; name another with --prices.")
    else:
        prices = study.prices
        lines.append(f"USD per million tokens: {prices.uncached:g} uncached, {prices.output:g} output.")
    return "\n".join(lines)


def _method(method: MethodRows) -> list[str]:
    one, other = method.passes
    recorded = method.recorded
    share = recorded.cached / recorded.prompt if recorded.prompt else 0.0
    lines = [
        f"{method.method}: {method.episodes} episodes of {len(method.runs)} runs, {one.requests} requests",
        _ROW.format("", "with cache", "without", "with/without"),
        _row("prompt tokens", one.prompt, other.prompt, "{:.0f}"),
        _row("  from the cache", one.cached, other.cached, "{:.0f}"),
        _row("  computed", one.computed, other.computed, "{:.0f}"),
        _row("output tokens", one.output, other.output, "{:.0f}"),
        _row("prompt tokens cached, %", 100 * one.cached_share, 100 * other.cached_share, "{:.2f}"),
        _row("time to first token, ms: mean", _ms(one.first_token_s), _ms(other.first_token_s), "{:.1f}"),
        _row("  median", _ms(one.first_token_p50_s), _ms(other.first_token_p50_s), "{:.1f}"),
        _row("  95th percentile", _ms(one.first_token_p95_s), _ms(other.first_token_p95_s), "{:.1f}"),
        _row("wall clock, s", one.wall_s, other.wall_s, "{:.2f}"),
        _row("engine's inference, request-s", one.inference_s, other.inference_s, "{:.2f}"),
        _row("output tokens/s", one.output_per_s, other.output_per_s, "{:.0f}"),
        _row("prompt and output tokens/s", one.total_per_s, other.total_per_s, "{:.0f}"),
    ]
    for ratio in RATIOS:
        key = f"{ratio:g}"
        lines.append(
            _row(f"USD, cached at {key} of uncached", one.usd.get(key), other.usd.get(key), "{:.6f}")
        )
    lines += [
        f"Recorded: {share:.2%} of {recorded.prompt} prompt tokens from the cache, {recorded.completion}"
        f" output tokens. With the cache, {one.warmings} requests sent a shared prefix alone; it has them.",
        f"Not played: {method.left_out} other requests of the ledgers (sleeps, probes, attempts given up).",
        *(_respelled(each) for each in method.passes),
    ]
    if one.foreign or other.foreign:
        lines.append(
            "Others used the engine meanwhile, or requests had to be tried again: its own figures are left"
            " out, and the other times are not to be trusted."
        )
    return lines


def _row(name: str, one: float | None, other: float | None, form: str) -> str:
    values = [NOT_MEASURED if value is None else form.format(value) for value in (one, other)]
    ratio = f"{one / other:.3f}" if one is not None and other else "-"
    return _ROW.format(name, *values, ratio)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _respelled(one: PassRow) -> str:
    by = {"replies": "as each reply tells", "histogram": "by the engine's histogram"}
    text = (
        f"{one.cache.capitalize()} the cache: {one.respelled} of {one.compared} forced answers took another"
        " number of tokens than recorded"
    )
    if one.unforced:
        text += f"; {one.unforced} came out with ANOTHER TEXT"
    if one.skipped:
        text += f"; {one.skipped} found no room in the context any more"
    source = by[one.first_token_by] if one.first_token_by else NOT_MEASURED
    return f"{text}; time to first token: {source}."
