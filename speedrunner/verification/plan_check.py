"""Check that a run's steps, episodes and sleeps are planned by its configuration."""

from __future__ import annotations

from envs import Task
from speedrunner.config.findings import Finding
from speedrunner.runs.plan import Evaluate, Sleep, Wake, number_of, step_key, step_name
from speedrunner.store.stored_run import sleep_key
from speedrunner.verification.differences import Differences
from speedrunner.verification.subject import Subject


class Plan:
    """The plan of a run's configuration, compared with the run's records.

    Raises:
        InvalidPlan: the configuration requests tasks that the environment lacks.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._found = Differences("plan")
        self._steps = subject.setup.plan()
        self._finished = subject.run.state.finished
        keys = {step_key(step) for step in self._steps}
        self.is_finished = keys <= set(self._finished)

    def check(self) -> Finding:
        """Compare the plan with the records. Raises `StorageError`."""
        found, steps = self._found, self._steps
        planned = {step_key(step): step for step in steps}
        names = {step_name(step): key for key, step in planned.items()}
        for key in self._finished:
            if key not in planned:
                name = key.rpartition("-")[0]
                what = f"the plan's is {names[name]}" if name in names else "it is not planned"
                found.differs("state.json", f"{key} is finished, and {what}")
        training = [key for key, step in planned.items() if not isinstance(step, Evaluate)]
        order = [key for key in self._finished if key in training]
        if order != training[: len(order)]:
            found.differs("state.json", "wakes and sleeps are not finished in the order of the plan")
        played, sleeps = self._episodes(), self._sleeps()
        episodes = sum(len(step.tasks) for step in steps)
        slept = sum(isinstance(step, Sleep) for step in steps)
        unfinished = "" if self.is_finished else "; the run is not finished: checked as far as it goes"
        return found.finding(
            f"{played} of {episodes} planned episodes and {sleeps} of {slept} sleeps{unfinished}"
        )

    def _episodes(self) -> int:
        """Check that every episode is planned, in its place, and that no episode of a finished step is
        missing."""
        found = self._found
        planned = {
            key: (step, task)
            for step in self._steps
            if isinstance(step, Wake | Evaluate)
            for key, task in step.tasks.items()
        }
        there: set[str] = set()
        trained: dict[Task, str] = {}
        for played in self._subject.episodes():
            episode = played.trajectory
            if played.phase == "sleep":
                continue
            key = episode.episode
            if key not in planned:
                found.differs(key, "it is not planned")
                continue
            step, task = planned[key]
            number = step.batch if isinstance(step, Wake) else step.checkpoint
            found.expect(key, "its task", episode.task, task)
            found.expect(key, "its policy", episode.policy, step.policy)
            found.expect(key, "number of its batch or checkpoint", played.number, number)
            if played.phase == "train" and trained.setdefault(episode.task, key) != key:
                found.differs(key, f"its task was trained on in {trained[episode.task]}")
            there.add(key)
        for key in [key for key in planned if key not in there]:
            if step_key(planned[key][0]) in self._finished:
                found.differs(key, f"it is missing, and {step_name(planned[key][0])} is finished")
        return len(there)

    def _sleeps(self) -> int:
        """Check that every sleep is planned, and played only allowed tasks."""
        found, subject = self._found, self._subject
        planned = {step.number: step for step in self._steps if isinstance(step, Sleep)}
        records = {record.sleep: record for record in subject.run.sleeps}
        tasks = {number_of(row.episode): row.task for row in subject.run.episodes if row.phase == "train"}
        for number, record in records.items():
            key = sleep_key(number)
            if number not in planned:
                found.differs(key, "it is not planned")
                continue
            step = planned[number]
            found.expect(key, "rollouts before it", record.rollouts, step.rollouts)
            allowed: set[Task] = set()
            if subject.setup.method.replays:
                before = number * subject.setup.config.run.sleep_every
                allowed |= {task for episode, task in tasks.items() if episode < before}
            for each in record.attempts:
                if each.task not in allowed:
                    found.differs(each.episode, f"it plays {each.task}, which the sleep may not")
                found.expect(each.episode, "its policy", each.policy, number - 1)
        for number, step in planned.items():
            if number not in records and step_key(step) in self._finished:
                found.differs(sleep_key(number), "it is missing, and finished")
        return len(records)
