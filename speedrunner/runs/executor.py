"""Execute the unfinished steps of a plan; a resumed run works exactly like a new one."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec
from rich.console import Console

from envs import Task
from serving.errors import ContentRefused, RequestFailed
from serving.tokens.transcript import common_prefix
from speedrunner.agents.actor import Actor, ActorSpec
from speedrunner.agents.episode import Episode, EpisodeContext, Watch, ignore_turn, play_episode
from speedrunner.methods.method_base import (
    ChangedSleep,
    EpisodeBroke,
    Method,
    SleepTools,
    newest_batch,
)
from speedrunner.plain.console import count_of
from speedrunner.runs.plan import (
    Due,
    Evaluate,
    Sleep,
    Step,
    Wake,
    step_key,
    step_name,
)
from speedrunner.runs.progress import Progress
from speedrunner.runs.server_deaths import ServerDeaths, Unit
from speedrunner.runs.shutdown import Shutdown
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.files import StorageError
from speedrunner.store.history import History
from speedrunner.store.records import (
    Labels,
    Phase,
    Policy,
    PrefixChange,
    SleepRecord,
    Termination,
    Trajectory,
)
from speedrunner.store.run_data import RunData
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.sleep_journal import SleepStep, read_steps
from speedrunner.store.stored_run import sleep_key
from speedrunner.workers.worker_pool import WorkerPool

FAULTS_IN_A_ROW = 5
"""Number of consecutive infrastructure errors of episodes after which the run stops, since the cause is not
the episode."""

GIVEN_UP = "its requests ended each server"


class RunStopped(Exception):
    """The run cannot continue now; the same command resumes it."""


@dataclass
class Executor:
    """Executes a run's unfinished steps."""

    directory: RunDirectory
    method: Method
    actor: Actor
    pool: WorkerPool
    progress: Progress = field(default_factory=lambda: Progress(Console(quiet=True), 0, 0))
    shutdown: Shutdown = field(default_factory=lambda: Shutdown(lambda line: None))
    attempts: dict[str, int] = field(default_factory=dict)
    """Number of attempts at each episode and sleep so far, interrupted ones included."""
    slots: asyncio.Semaphore | None = None
    """Episodes at the same time, shared with other runs; `None`: as many as there are workers."""
    watch: Watch = ignore_turn
    finished: Callable[[Step], None] = lambda step: None
    """Called with each finished step, after its records are written."""
    deaths: ServerDeaths = field(default_factory=ServerDeaths)
    """Shared with all runs of the process."""

    def __post_init__(self) -> None:
        self._faults = 0
        self._failure: BaseException | None = None
        """The first failure; errors raised during the cancellation that follows it are ignored."""

    async def execute(self, left: Iterable[Due]) -> None:
        """Execute the unfinished steps. Evaluations change nothing, so they run in parallel with the next
        steps.

        Raises:
            RunStopped: too many consecutive infrastructure errors.
            Interrupted: a shutdown was requested, or the time is over (`TimeIsUp`).
            ServingError, StorageError, WorkerError: the engine, the disk or all workers failed.
        """
        self._writer = ThreadPoolExecutor(1, "episodes")
        try:
            async with asyncio.TaskGroup() as evaluations:
                for due in left:
                    if self.shutdown.requested:
                        break
                    step = due.step
                    if isinstance(step, Sleep):
                        await self._note_failure(partial(self._sleep, step))
                        continue
                    work = self._note_failure(partial(self._play, step, due.tasks))
                    if isinstance(step, Wake):
                        await work
                    else:
                        evaluations.create_task(work, name=step_name(step))
        except BaseExceptionGroup as group_error:
            raise self._failure or group_error from None
        finally:
            self._writer.shutdown()
        self.shutdown.check()

    async def _note_failure(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` and note the first failure of all concurrent work."""
        try:
            await work()  # created here, because a task may be cancelled before it starts
        except BaseExceptionGroup:
            raise  # its errors were already noted
        except Exception as error:
            self._failure = self._failure or error
            raise

    async def _play(self, step: Wake | Evaluate, pending: dict[str, Task]) -> None:
        """Play tasks of a step, as many at once as there are workers.

        A shutdown leaves the remaining tasks unplayed and the step unfinished.
        """
        directory = self.directory
        phase: Phase
        match step:
            case Wake(batch=number):
                phase, tries, checkpoint = "train", 1, step.first
            case Evaluate(checkpoint=number):
                # An infrastructure error says nothing about the policy, so held-out episodes are retried
                # once.
                phase, tries, checkpoint = "test", 2, number
        policy = directory.policies.load(step.policy)
        specs = {episode: self._spec(policy, task, phase) for episode, task in pending.items()}
        labels = Labels(phase=phase, policy=step.policy)

        def keep(trajectory: Trajectory) -> None:
            directory.append_trajectory(phase, number, trajectory)
            directory.append_episode(summarize_episode(trajectory, phase, checkpoint))

        async def play(episode: str, task: Task) -> None:
            is_given_up = self.deaths.is_given_up(unit := self._unit(episode))
            for left in reversed(range(tries)):
                async with (
                    self.deaths.turn(unit),
                    self.pool.worker(behind=phase == "test") as worker,
                    self.slots or nullcontext(),
                ):
                    if self.shutdown.requested:
                        return
                    with self.shutdown.unit(episode):
                        trajectory = await play_episode(
                            self.actor,
                            Episode(
                                episode,
                                task,
                                step.policy,
                                self._next_attempt(episode),
                                seed=directory.state.skill_seed(task),
                            ),
                            specs[episode],
                            worker,
                            labels,
                            play=_give_up if is_given_up else partial(self.method.play, policy),
                            watch=self.watch,
                        )
                if not trajectory.termination.is_fault or is_given_up or not left:
                    break
                self.progress.say(
                    f"{episode} ended by {trajectory.termination} ({trajectory.fault:.300}); retrying it once"
                )
            await self._store_episode(keep, trajectory)
            self.progress.episode(step_name(step), trajectory)
            if trajectory.termination.is_fault:
                self.progress.say(
                    f"{_describe_failure(trajectory)}; its traceback: {self._show_command(episode)}"
                )
            self._count_faults(trajectory)

        with self.progress.step(step_name(step), len(step.tasks), len(step.tasks) - len(pending)):
            await self._warm(specs.values(), labels)
            async with asyncio.TaskGroup() as group:
                for episode, task in pending.items():
                    group.create_task(self._note_failure(partial(play, episode, task)), name=episode)
        if not self.shutdown.requested:
            self._finish(step)

    async def _warm(self, specs: Iterable[ActorSpec], labels: Labels) -> None:
        """Send each prefix that several episodes share, once, before they start; failure only costs time."""
        seen: list[ActorSpec] = []
        shared: list[ActorSpec] = []
        for spec in specs:
            group = shared if spec in seen else seen
            if spec not in group:
                group.append(spec)

        async def send(spec: ActorSpec) -> None:
            with suppress(RequestFailed):
                await self.actor.warm(spec, labels)

        await asyncio.gather(*map(send, shared))

    async def _sleep(self, step: Sleep) -> None:
        if step.number not in self.directory.policies.versions():
            if self.shutdown.requested:
                return
            async with self.deaths.turn(self._unit(sleep_key(step.number))):
                await self._learn(step)
        # Otherwise a kill happened after the policy was written.
        self.directory.remove_sleep_journal()
        self._finish(step)

    def _finish(self, step: Step) -> None:
        self.directory.mark_finished(step_key(step))
        self.finished(step)

    async def _learn(self, step: Sleep) -> None:
        """Sleep, or continue a sleep that was interrupted."""
        run = self.directory.read()
        name, steps = step_name(step), list[SleepStep]()
        try:
            steps = read_steps(run.files.sleep_journal, step.number)
        except StorageError as error:
            self.progress.say(f"{name} starts over: {error}")
        if steps:
            self.progress.say(f"{name} continues after {len(steps)} recorded turns and episodes")
        try:
            await self._learn_after(step, run, steps)
        except ChangedSleep as changed:
            self.progress.say(f"{name} starts over, because {changed}")
            await self._learn_after(step, run, [])

    async def _learn_after(self, step: Sleep, run: RunData, steps: Sequence[SleepStep]) -> None:
        """Sleep, after the steps that are in the journal already."""
        policy = self.directory.policies.load(step.number - 1)
        history = History(run, self.method.sees, self.directory.history_copies)
        name = sleep_key(step.number)
        attempt = steps[0].attempt if steps else self._next_attempt(name)

        def note_step() -> None:
            self.shutdown.note_step()
            self.progress.turn(step_name(step))

        journal = self.directory.sleep_journal(step.number, attempt, steps, note_step)
        labels = Labels(phase="sleep", policy=policy.version, episode=name, attempt=attempt)

        async def play(number: int, task: Task, spec: ActorSpec) -> Trajectory:
            stored = self._spec(policy, task).library.module()
            key, seed = f"{name}/again/{number:04d}", self.directory.state.skill_seed(task)
            episode = Episode(key, task, policy.version, attempt, stored, seed)
            async with self.pool.worker() as worker, self.slots or nullcontext():
                return await play_episode(self.actor, episode, spec, worker, labels)

        ended = (row for row in run.rows if row.phase == "train" and not row.termination.is_fault)
        tasks = {row.task for row in ended if self.method.replays}
        tools = SleepTools(self.method, self.actor, step.number, labels, journal, tasks, play)
        with self.progress.step(step_name(step), 0, 0), self.shutdown.unit(name):
            try:
                learnt = policy
                if self.deaths.is_given_up(self._unit(name)):
                    tools.fell_short(GIVEN_UP)
                elif newest_batch(history):
                    learnt = await self.method.sleep(policy, history, tools)
                else:
                    tools.fell_short("no episode of the batch has a score, so there is nothing to learn from")
            except ContentRefused as refused:  # the same request would be refused again
                tools.fell_short(str(refused))
                tools.take_back(str(refused))
            except EpisodeBroke as broke:
                raise RunStopped(f"twice, {_describe_failure(broke.played)}") from None
        learnt = msgspec.structs.replace(learnt, version=step.number)
        task = history.batch(history.batches()[-1])[0].task
        before, after = (self.actor.shared_prefix(self._spec(version, task)) for version in (policy, learnt))
        prefix = self._compare_prefixes(before, after) if after else None
        record = SleepRecord(
            sleep=step.number,
            rollouts=step.rollouts,
            attempt=attempt,
            agents=tools.agents,
            edits=tools.edits,
            seconds=round(journal.seconds, 3),
            error=tools.error,
            episodes=tools.episodes,
            prefix=prefix,
            shown=tools.shown,
            changed=tools.changed,
        )
        self.directory.write_sleep(record)
        self.directory.write_policy(learnt)
        kept = ""
        if prefix is not None:
            cached = "" if prefix.kept is None else f", {prefix.kept} of them cached"
            kept = f"; {prefix.common} of {prefix.before} prefix tokens are unchanged{cached}"
        if tools.shown is not None and tools.shown < 1:
            kept += f"; the prompt showed {tools.shown:.0%} of the batch's text"
        notes = f", notes of {len(learnt.notes)} characters" if learnt.notes else ""
        edits = f"{count_of(record.accepted, 'edit')} accepted, {record.refused} refused"
        changes = "; ".join(filter(None, (record.changed, edits if record.edits else "")))
        self.progress.say(
            f"{name}: {count_of(len(learnt.skills), 'skill')}{notes}; {changes or 'nothing changed'}{kept}"
            + (f"; {tools.error}" if tools.error else "")
        )

    def _compare_prefixes(self, before: list[int], after: list[int]) -> PrefixChange:
        common = len(common_prefix(before, after))
        cache = self.actor.model.replicas[0].cache
        kept = None if cache is None else cache.kept_by_edit(len(before), common)
        return PrefixChange(len(before), len(after), common, kept)

    def _spec(self, policy: Policy, task: Task, phase: Phase = "test") -> ActorSpec:
        spec = self.method.agent(policy, task, self.actor.env, training=phase == "train")
        return spec.with_part(self.actor.config.library)

    async def _store_episode(self, keep: Callable[[Trajectory], None], trajectory: Trajectory) -> None:
        """Write an episode even if the run is stopped. Other episodes continue meanwhile, as a disk may be
        slow."""
        writing = asyncio.get_running_loop().run_in_executor(self._writer, keep, trajectory)
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            writing.exception()  # retrieved and ignored; the error that stopped the run is reported
            raise

    def _unit(self, key: str) -> Unit:
        return str(self.directory.path), key

    def _next_attempt(self, key: str) -> int:
        self.attempts[key] = self.attempts.get(key, 0) + 1
        return self.attempts[key]

    def _count_faults(self, trajectory: Trajectory) -> None:
        is_broken = trajectory.termination.is_fault and trajectory.termination is not Termination.REFUSED
        self._faults = self._faults + 1 if is_broken else 0
        if self._faults >= FAULTS_IN_A_ROW:
            raise RunStopped(
                f"{self._faults} episodes in a row ended by an infrastructure error; the last:"
                f" {_describe_failure(trajectory)}; its traceback: {self._show_command(trajectory.episode)};"
                " fix it and resume with run.retry_faults=true to replay these episodes"
            )

    def _show_command(self, episode: str) -> str:
        return shlex.join(["speedrunner", "show", str(self.directory.path), episode])


async def _give_up(spec: ActorSpec, context: EpisodeContext) -> Termination:
    """Play nothing of an episode that is given up."""
    raise RequestFailed(GIVEN_UP)


def _describe_failure(trajectory: Trajectory) -> str:
    """Return a failed episode's key, task and termination, and the first line of its error."""
    task, ending = trajectory.task, trajectory.termination
    return f"{trajectory.episode} (task {task.name} {task.index}) ended by {ending}: {trajectory.fault}"
