"""What a run cost, as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from speedrunner.costs.breakdown import Breakdown, Classes, Line
from speedrunner.costs.stored_accounts import StoredAccounts

HEAD = ("requests", "cached", "computed", "reasoning", "action", "USD", "engine s")
_FORMAT = "{:14}{:>9}{:>10}{:>10}{:>10}{:>9}{:>10}{:>9}"

NOT_MEASURED = "not measured"


def cost_lines(found: Breakdown) -> list[str]:
    """The breakdown per role, per class and per checkpoint, and the prefix cache's share."""
    total = found.total
    lines = [_FORMAT.format("role", *HEAD)]
    lines += [_line(role, line) for role, line in found.roles.items()]
    lines.append(_line("all", total))
    lines.append(_counted("of it wasted", "", total.wasted, total.wasted_usd, None))
    if total.usd_by_class is not None:
        usd = total.usd_by_class
        each = (f"{amount:.6f}" for amount in (usd.cached, usd.computed, usd.reasoning, usd.action))
        lines.append(_FORMAT.format("USD", "", *each, f"{usd.total:.6f}", ""))
    if total.unreported:
        prompt, generated = total.at_most.cached + total.at_most.computed, total.at_most.action
        lines.append(
            f"{total.unreported} requests were cut off before their tokens were told: at most {prompt:.0f}"
            f" prompt and {generated:.0f} generated tokens, {total.at_most_usd:.6f} USD, beyond these sums."
        )
    if found.unpriced:
        lines.append(f"USD of {', '.join(found.unpriced)}: {NOT_MEASURED}; the sums are without it.")
    lines += ["", _FORMAT.format("phase, policy", *HEAD)]
    for (phase, policy), line in found.checkpoints.items():
        lines.append(_line(phase if policy is None else f"{phase} v{policy}", line))
    lines += ["", _cache(found)]
    if total.engine_s is None:
        lines.append(f"Engine time: {NOT_MEASURED} (no ledger shows when an engine of ours was ready).")
    return lines


def account_text(accounts: StoredAccounts) -> str:
    """Whether the ledger's sums are the stored accounts."""
    killed = f"; {accounts.without} processes left none" if accounts.without else ""
    if not accounts.accounts:
        return f"Stored accounts: {NOT_MEASURED}: no process came to its end{killed}."
    wrong = [account for account in accounts.accounts if not account.equal]
    count = len(accounts.accounts)
    if not wrong:
        agree = sum(account.balances for account in accounts.accounts)
        return (
            f"Stored accounts: the classes' sums equal the stored ones ({count} of {count}); {agree} of these"
            f" agreed with the engine's counters{killed}."
        )
    here, there = wrong[0].ledger, wrong[0].stored
    return (
        f"Stored accounts: {len(wrong)} of {count} DIFFER from the classes' sums, such as prompt"
        f" {here.prompt} now, {there.prompt} stored; cached {here.cached}, {there.cached}; generated"
        f" {here.generated}, {there.generated} (the engine was started again meanwhile, or shared with runs"
        f" that were not named){killed}."
    )


def total_lines(names: Sequence[str], found: Sequence[Breakdown]) -> list[str]:
    """One line per run, and their sum."""
    lines = [_FORMAT.format("run", *HEAD)]
    for name, each in zip(names, found, strict=True):
        lines += [name, _line("", each.total)]
    lines.append(_line("all", sum((each.total for each in found), Line())))
    return lines


def _line(name: str, line: Line) -> str:
    return _counted(name, str(line.requests), line.tokens, line.usd, line.engine_s)


def _counted(name: str, requests: str, tokens: Classes, usd: float | None, engine_s: float | None) -> str:
    classes = (f"{n:.0f}" for n in (tokens.cached, tokens.computed, tokens.reasoning, tokens.action))
    return _FORMAT.format(
        name,
        requests,
        *classes,
        "-" if usd is None else f"{usd:.6f}",
        "-" if engine_s is None else f"{engine_s:.1f}",
    )


def _cache(found: Breakdown) -> str:
    cache = found.cache
    if cache.share is None:
        return f"Prefix cache: {NOT_MEASURED} (no request says how much of its prompt could be cached)."
    return (
        f"Prefix cache: {cache.cached} of the {cache.cacheable} prompt tokens that could be cached were, in"
        f" {cache.requests} requests: {cache.share:.2%}."
    )
