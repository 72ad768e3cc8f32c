"""Check that the ledger, the episodes and the engine's counters agree, and that prompts grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import astuple

from serving.meter import Reconciliation
from serving.usage import Counters, Usage
from speedrunner.plain.findings import Finding
from speedrunner.runs.verification.checked_run import CheckedRun, Differences, contrast, turn_of
from speedrunner.store.discovery import DAMAGED
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import Labels, Turn
from speedrunner.store.run_data import RunData, load
from speedrunner.store.stored_run import sleep_key

SHARED = "of an engine that several runs shared, not all of which are in the folder of this one"


def check_reconciliations(checked: CheckedRun) -> Finding:
    """Compare them. Raises `StorageError`, `InvalidPlan`."""
    found = Differences("reconciliations")
    used = _check_used_tokens(checked, found)
    _check_growth(checked, found)
    summaries = _check_summaries(checked, found)
    stored = _check_stored_sums(checked.run, found)
    return found.finding(
        f"{used} episodes and sleeps with their rows in the ledger, {summaries} summary rows, {stored}"
    )


def _check_used_tokens(checked: CheckedRun, found: Differences) -> int:
    """Check that each episode and each sleep has the tokens of its own rows, and no other one does."""
    recorded: dict[tuple[str, int], Usage] = {}
    attempts = {row.episode: row.attempt for row in checked.run.episodes}
    for played in checked.episodes():
        key, attempt = played.trajectory.episode, played.trajectory.attempt
        if attempts.get(key) == attempt:
            recorded[key, attempt] = played.trajectory.usage
    for record in checked.run.sleeps:
        recorded[sleep_key(record.sleep), record.attempt] = record.usage
    spent = dict.fromkeys(recorded, Usage())
    for row in checked.run.requests:
        labels = Labels.of(row.labels)
        if row.wasted or row.usage is None or labels.episode is None or labels.attempt is None:
            continue
        one = labels.episode, labels.attempt
        if one in spent:
            spent[one] += row.usage
        elif checked.is_finished:
            what = f"it has tokens of {one[0]}, attempt {one[1]}, which is not recorded"
            found.differs("requests.jsonl", what)
    for one, usage in recorded.items():
        found.expect(one[0], "tokens of its turns and of its rows in the ledger", usage, spent[one])
    return len(recorded)


def _check_growth(checked: CheckedRun, found: Differences) -> None:
    """Check that each prompt has room for the one before it and its answer, on the completions API: others
    leave reasoning out of later prompts."""
    setup = checked.setup
    talks = [(each.trajectory.episode, each.trajectory.turns) for each in checked.episodes()]
    talks += [(sleep_key(each.sleep), agent.turns) for each in checked.run.sleeps for agent in each.agents]
    for key, turns in talks:
        last: dict[int, Turn] = {}
        for number, turn in enumerate(turns):
            before = last.get(turn.conversation)
            config = setup.model_config if turn.role == "actor" else setup.inducer_model_config
            grows = before is not None and config.api == "completions"
            least = before.usage.prompt + before.usage.completion if before and grows else 0
            if turn.usage.prompt < least:
                what = f"its prompt has {turn.usage.prompt} tokens, the one before and its answer {least}"
                found.differs(turn_of(key, number), what)
            last[turn.conversation] = turn


def _check_summaries(checked: CheckedRun, found: Differences) -> int:
    """Check that each summary row follows from its episode."""
    written = checked.run.written_rows
    rows = {(row.episode, row.attempt): row for row in written}
    if len(rows) < len(written):
        found.differs("episodes.jsonl", f"{len(written) - len(rows)} rows occur twice")
    for played in checked.episodes():
        if played.phase == "sleep":
            continue
        episode, before = played.trajectory, played.number
        if played.phase == "train":
            before *= checked.setup.config.run.sleep_every
        row = rows.pop((episode.episode, episode.attempt), None)
        if row is not None:
            given = summarize_episode(episode, played.phase, before)
            found.expect(episode.episode, "its row in episodes.jsonl", row, given)
        elif checked.is_finished:
            found.differs(episode.episode, "it has no row in episodes.jsonl")
    for key, _ in rows:
        found.differs("episodes.jsonl", f"it has a row of {key}, which is not recorded")
    return len(written)


def _check_stored_sums(run: RunData, found: Differences) -> str:
    """Check that the sums stored by each process are those of the ledger; return a summary."""
    equal = agreed = 0
    for one in run.reconciliations:
        ledger = _sum_rows([run], one)
        if ledger != one.ledger and one.clients != 1 and min(astuple(one.ledger - ledger)) >= 0:
            ledger = _sum_rows([run, *_neighbours(run, one)], one)
            if ledger != one.ledger:
                found.left_out[SHARED] += 1
                continue
        equal += ledger == one.ledger
        agreed += one.agrees
        if ledger != one.ledger:
            found.differs("reconciliation.jsonl", f"sums of the ledger: {contrast(one.ledger, ledger)}")
        if one.ours and not one.agrees:
            counted = contrast(one.ledger, one.engine)
            found.differs(
                "reconciliation.jsonl", f"counters of the engine, which no one else used: {counted}"
            )
    return f"{equal} stored reconciliations, {agreed} of them equal to the engine's counters"


def _sum_rows(runs: Sequence[RunData], one: Reconciliation) -> Counters:
    """Return the sums of the rows that a reconciliation covers."""
    rows = (row for run in runs for row in run.ledger if row.model == one.model)
    used = (row.usage for row in rows if row.usage and one.since <= row.time <= one.time)
    return Counters.of(sum(used, Usage()))


def _neighbours(run: RunData, one: Reconciliation) -> Iterator[RunData]:
    """Yield the other runs of the folder that stored a reconciliation of the same engine."""
    for folder in sorted(run.path.resolve().parent.iterdir()):
        if folder != run.path.resolve() and (folder / "reconciliation.jsonl").is_file():
            try:
                other = load(folder)
                if any((each.model, each.since) == (one.model, one.since) for each in other.reconciliations):
                    yield other
            except DAMAGED:
                continue
