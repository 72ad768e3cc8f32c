"""Checks of a run's records: its plan, its policies, and its tokens.

The library is pure: an edit parses and writes code without running it. So each sleep's accepted edits are
repeated on the library before it, and the result is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from serving.usage import Usage
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.plain.findings import Finding
from speedrunner.runs.identity import history_digest
from speedrunner.runs.plan import Sleep, step_key, step_name
from speedrunner.runs.verification.checked_run import CheckedRun, Differences, contrast, turn_of
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import Edit, Labels, Policy, Turn
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import sleep_key


def check_plan(checked: CheckedRun) -> Finding:
    """Compare the plan with the records. Raises `StorageError`, and `InvalidPlan` if the configuration
    requests tasks that the environment lacks."""
    differences, steps = Differences("plan"), {step_key(step): step for step in checked.setup.plan()}
    plays = [step for step in steps.values() if not isinstance(step, Sleep)]
    tasks = {key: (task, step.policy) for step in plays for key, task in step.tasks.items()}
    slept = {sleep_key(step.number): step for step in steps.values() if isinstance(step, Sleep)}
    finished, there, sleeps = checked.run.state.finished, set[str](), set[str]()
    for key in finished:
        if key not in steps:
            differences.add("state.json", f"{key} is finished, and it is not planned")
    for episode in (each.trajectory for each in checked.episodes() if each.phase != "sleep"):
        there.add(key := episode.episode)
        if key not in tasks:
            differences.add(key, "it is not planned")
            continue
        task, policy = tasks[key]
        differences.expect(key, "its task", episode.task, task)
        differences.expect(key, "its policy", episode.policy, policy)
    for record in checked.run.sleeps:
        sleeps.add(key := sleep_key(record.sleep))
        if key not in slept:
            differences.add(key, "it is not planned")
        else:
            differences.expect(key, "rollouts before it", record.rollouts, slept[key].rollouts)
    for step in (steps[key] for key in finished if key in steps):
        needed = [sleep_key(step.number)] if isinstance(step, Sleep) else [*step.tasks]
        for key in needed:
            if key not in there | sleeps:
                differences.add(key, f"it is missing, and {step_name(step)} is finished")
    unfinished = "" if checked.is_finished else "; the run is not finished: checked as far as it goes"
    return differences.finding(
        f"{len(there)} of {len(tasks)} planned episodes and {len(sleeps)} of {len(slept)} sleeps{unfinished}"
    )


def check_policies(checked: CheckedRun) -> Finding:
    """Compare each policy version with the result of its sleep's edits on the version before.

    Raises `StorageError` if sleeps or policies cannot be read.
    """
    differences = Differences("policies")
    versions = checked.run.policies.versions()
    records = {each.sleep: each for each in checked.run.sleeps}
    if versions != list(range(len(versions))):
        differences.add("policies", f"the versions have gaps: {', '.join(map(str, versions))}")
    edits = 0
    before: Policy | None = None
    for version in versions:
        name = f"policies/v{version:04d}"
        try:
            policy = checked.policy(version)
            after = Library(checked.setup.env.primitives).of(policy)
        except InvalidPolicy as error:
            differences.add(name, str(error))
            before = None
            continue
        if version == 0:
            setup, process = checked.setup, checked.process
            if setup.config.run.start_from is None and policy != setup.method.initial():
                differences.add(name, f"it is not the initial policy of {setup.config.method.name}")
            if process is not None and history_digest(checked.run.path) != process.history:
                differences.add("carried", "it is not the history that the run was played with")
        elif version not in records:
            differences.add(name, f"{sleep_key(version)}, which made it, is missing")
        elif before is not None:
            accepted = [edit for edit in records[version].edits if edit.error is None]
            edits += len(accepted)
            starts = _possible_starts(checked, before)
            problems = (_problems(start, accepted, after, version) for start in starts)
            for problem in min(problems, key=len):
                differences.add(name, problem)
        before = policy
    return differences.finding(f"{len(versions)} versions, made by {edits} accepted edits")


def _possible_starts(checked: CheckedRun, policy: Policy) -> list[Library]:
    """Return the possible initial libraries of a sleep: the stored one, with each skill's visibility as
    stored or as the method shows it to the actor."""
    setup = checked.setup
    spec = setup.method.agent(policy, [*setup.split.train, *setup.split.test][0], setup.env)
    shown = {each.name: each.public for each in spec.library.skills}
    skills = tuple(
        msgspec.structs.replace(each, public=shown.get(each.name, each.public)) for each in policy.skills
    )
    starts = [policy] if skills == policy.skills else [policy, msgspec.structs.replace(policy, skills=skills)]
    return [Library(setup.env.primitives).of(each) for each in starts]


def _problems(library: Library, edits: Sequence[Edit], after: Library, sleep: int) -> list[str]:
    """Repeat edits on a library, and return how the result differs from the library after the sleep."""
    for number, edit in enumerate(edits, start=1):
        what = f"accepted edit {number} ({edit.action} of {edit.name:.80})"
        if edit.action != "write" and edit.name not in library.named:
            return [f"{what} changes a definition that does not exist"]
        try:
            edited = library.apply(edit, sleep=sleep)
        except InvalidSkill as error:
            return [f"{what} is refused: {error!s:.200}"]
        if edited == library:
            return [f"{what} changes nothing"]
        library = edited
    files = ("skills.py", after.source, library.source), ("library.json", after.skills, library.skills)
    return [
        f"{file} is not as the accepted edits leave it: {contrast(recorded, expected)}"
        for file, recorded, expected in files
        if recorded != expected
    ]


def check_reconciliations(checked: CheckedRun) -> Finding:
    """Compare them. Raises `StorageError`, `InvalidPlan`."""
    differences = Differences("reconciliations")
    used = _check_used_tokens(checked, differences)
    _check_growth(checked, differences)
    summaries = _check_summaries(checked, differences)
    stored = _check_counters(checked.run, differences)
    return differences.finding(
        f"{used} episodes and sleeps with their rows in the ledger, {summaries} summary rows, {stored}"
    )


def _check_used_tokens(checked: CheckedRun, differences: Differences) -> int:
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
            differences.add("requests.jsonl", what)
    for one, usage in recorded.items():
        differences.expect(one[0], "tokens of its turns and of its rows in the ledger", usage, spent[one])
    return len(recorded)


def _check_growth(checked: CheckedRun, differences: Differences) -> None:
    """Check that each prompt has room for the one before it and its answer, on the completions API: others
    leave reasoning out of later prompts."""
    setup = checked.setup
    talks = [(each.trajectory.episode, each.trajectory.turns) for each in checked.episodes()]
    talks += [(sleep_key(each.sleep), agent.turns) for each in checked.run.sleeps for agent in each.agents]
    for key, turns in talks:
        last: dict[int, Turn] = {}
        for number, turn in enumerate(turns):
            before = last.get(turn.conversation)
            grows = before is not None and setup.model_config.api == "completions"
            least = before.usage.prompt + before.usage.completion if before and grows else 0
            if turn.usage.prompt < least:
                what = f"its prompt has {turn.usage.prompt} tokens, the one before and its answer {least}"
                differences.add(turn_of(key, number), what)
            last[turn.conversation] = turn


def _check_summaries(checked: CheckedRun, differences: Differences) -> int:
    """Check that each summary row follows from its episode."""
    written = checked.run.written_rows
    rows = {(row.episode, row.attempt): row for row in written}
    if len(rows) < len(written):
        differences.add("episodes.jsonl", f"{len(written) - len(rows)} rows occur twice")
    for played in checked.episodes():
        if played.phase == "sleep":
            continue
        episode, before = played.trajectory, played.number
        if played.phase == "train":
            before *= checked.setup.config.run.sleep_every
        row = rows.pop((episode.episode, episode.attempt), None)
        if row is not None:
            given = summarize_episode(episode, played.phase, before)
            differences.expect(episode.episode, "its row in episodes.jsonl", row, given)
        elif checked.is_finished:
            differences.add(episode.episode, "it has no row in episodes.jsonl")
    for key, _ in rows:
        differences.add("episodes.jsonl", f"it has a row of {key}, which is not recorded")
    return len(written)


def _check_counters(run: RunData, differences: Differences) -> str:
    """Check that each process's ledger agrees with the counters of an engine of its own; return a summary."""
    for one in run.reconciliations:
        if one.ours and not one.agrees:
            counted = contrast(one.ledger, one.engine)
            differences.add(
                "reconciliation.jsonl", f"counters of the engine, which no one else used: {counted}"
            )
    agreed = sum(one.agrees for one in run.reconciliations)
    return (
        f"{len(run.reconciliations)} stored reconciliations, {agreed} of them equal to the engine's counters"
    )
