"""Check that a run's steps, episodes and sleeps are planned by its configuration."""

from __future__ import annotations

from speedrunner.plain.findings import Finding
from speedrunner.runs.plan import Sleep, step_key, step_name
from speedrunner.runs.verification.differences import Differences
from speedrunner.runs.verification.subject import Subject
from speedrunner.store.stored_run import sleep_key


def check_plan(subject: Subject) -> Finding:
    """Compare the plan with the records. Raises `StorageError`, and `InvalidPlan` if the configuration
    requests tasks that the environment lacks."""
    found, steps = Differences("plan"), {step_key(step): step for step in subject.setup.plan()}
    plays = [step for step in steps.values() if not isinstance(step, Sleep)]
    tasks = {key: (task, step.policy) for step in plays for key, task in step.tasks.items()}
    slept = {sleep_key(step.number): step for step in steps.values() if isinstance(step, Sleep)}
    finished, there, sleeps = subject.run.state.finished, set[str](), set[str]()
    for key in finished:
        if key not in steps:
            found.differs("state.json", f"{key} is finished, and it is not planned")
    for episode in (each.trajectory for each in subject.episodes() if each.phase != "sleep"):
        there.add(key := episode.episode)
        if key not in tasks:
            found.differs(key, "it is not planned")
            continue
        task, policy = tasks[key]
        found.expect(key, "its task", episode.task, task)
        found.expect(key, "its policy", episode.policy, policy)
    for record in subject.run.sleeps:
        sleeps.add(key := sleep_key(record.sleep))
        if key not in slept:
            found.differs(key, "it is not planned")
        else:
            found.expect(key, "rollouts before it", record.rollouts, slept[key].rollouts)
    for step in (steps[key] for key in finished if key in steps):
        needed = [sleep_key(step.number)] if isinstance(step, Sleep) else [*step.tasks]
        for key in needed:
            if key not in there | sleeps:
                found.differs(key, f"it is missing, and {step_name(step)} is finished")
    unfinished = "" if subject.is_finished else "; the run is not finished: checked as far as it goes"
    return found.finding(
        f"{len(there)} of {len(tasks)} planned episodes and {len(sleeps)} of {len(slept)} sleeps{unfinished}"
    )
