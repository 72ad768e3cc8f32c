"""Export evaluations as Inspect logs, one for each checkpoint of a run; `inspect view` opens them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from serving.usage import Usage
from speedrunner.config.names import identify_condition
from speedrunner.config.schema import to_mapping
from speedrunner.results.export.conversations import of_episode, run_names, timestamp
from speedrunner.results.frames import frame_episodes
from speedrunner.results.means import average_tests
from speedrunner.results.writing import list_rows
from speedrunner.store.process_notes import caveats
from speedrunner.store.records import Trajectory, Turn
from speedrunner.store.run_data import RunData, load

SCORER = "score"


def write_logs(runs: Sequence[Path], folder: Path) -> list[Path]:
    """Write the evaluations of runs into an empty folder. Return the logs.

    An episode that ended by an infrastructure error has an error and no score.

    Raises:
        StorageError: a run cannot be read.
        InvalidConfig: a run's configuration cannot be read.
        OSError: the folder cannot be written.
    """
    inspect = import_module("inspect_ai.log")
    written: list[Path] = []
    for name, path in zip(run_names(runs), runs, strict=True):
        run = load(path)
        for point in list_rows(average_tests(frame_episodes(run.episodes), run.settings.run.test_episodes)):
            if not (played := run.evaluations(point["checkpoint"])):
                continue  # a damaged run may have only summary rows
            file = folder / f"{name}-{point['checkpoint']:04d}.eval"
            inspect.write_eval_log(_log(inspect, run, point, played), str(file))
            written.append(file)
    return written


def _sample_id(trajectory: Trajectory) -> str:
    """Return the task's name and index, which are the same in the logs of all checkpoints and runs."""
    return f"{trajectory.task.name}/{trajectory.task.index}"


def _log(inspect: Any, run: RunData, point: Mapping[str, Any], played: Sequence[Trajectory]) -> Any:
    """Return the log of a checkpoint.

    Args:
        point: its row of `average_tests`, which also counts episodes that cannot be read.
    """
    config, checkpoint = run.settings, point["checkpoint"]
    names = identify_condition(config).by_column
    episodes, unscored, score = point["episodes"], point["unscored"], point["score"]
    started = min(trajectory.started for trajectory in played)
    ended = max(trajectory.started + trajectory.seconds for trajectory in played)
    task = f"{names['env']} {names['method']} after {checkpoint} rollouts"
    mean = {} if score is None else {"mean": inspect.EvalMetric(name="mean", value=score)}
    return inspect.EvalLog(
        status="success" if len(played) >= config.run.test_episodes else "started",
        eval=inspect.EvalSpec(
            created=timestamp(started),
            task=task,
            task_args={"run": run.path.name, "checkpoint": checkpoint, "seed": config.run.seed, **names},
            dataset=inspect.EvalDataset(
                name=names["env"],
                samples=len(played),
                sample_ids=[_sample_id(trajectory) for trajectory in played],
            ),
            model=config.model.name,
            config=inspect.EvalConfig(),
            metadata={"configuration": to_mapping(config), "caveats": caveats([run])},
        ),
        results=inspect.EvalResults(
            total_samples=episodes,
            completed_samples=episodes - unscored,
            scores=[
                inspect.EvalScore(
                    name=SCORER,
                    scorer=SCORER,
                    scored_samples=episodes - unscored,
                    unscored_samples=unscored,
                    metrics=mean,
                )
            ],
        ),
        stats=inspect.EvalStats(started_at=timestamp(started), completed_at=timestamp(ended)),
        samples=[_sample(inspect, trajectory, config.model.name) for trajectory in played],
    )


def _sample(inspect: Any, trajectory: Trajectory, model: str) -> Any:
    scoring = import_module("inspect_ai.scorer")
    outcome = trajectory.outcome
    answers = [answer for conversation in of_episode(trajectory) for answer in _answers(conversation.turns)]
    prompts = (
        message.content for turn in trajectory.turns for message in turn.messages if message.role == "user"
    )
    score = outcome and scoring.Score(value=outcome.score, metadata={"success": outcome.success})
    error = None
    if outcome is None:
        whole = trajectory.error or trajectory.fault
        error = inspect.EvalError(message=trajectory.fault, traceback=whole, traceback_ansi=whole)
    return inspect.EvalSample(
        id=_sample_id(trajectory),
        epoch=1,
        input=next(prompts, ""),
        target="",
        messages=[message for _, read, written in answers for message in (*read, written)],
        events=list(_events(answers, model, trajectory.started)),
        scores=score and {SCORER: score},
        metadata={
            "episode": trajectory.episode,
            "termination": str(trajectory.termination),
            "policy": trajectory.policy,
        },
        model_usage={model: _usage(trajectory.usage)},
        total_time=trajectory.seconds,
        error=error,
    )


def _answers(turns: Sequence[Turn]) -> Iterator[tuple[Turn, list[Any], Any]]:
    """Yield each turn with the messages that the model read and the one that it wrote, in Inspect's types.

    A tool's reply names the call before it.
    """
    chat, tool = import_module("inspect_ai.model"), import_module("inspect_ai.tool")
    kinds = {"system": chat.ChatMessageSystem, "tool": chat.ChatMessageTool}
    call = None
    for number, turn in enumerate(turns):
        named: dict[str, Any] = {"tool_call_id": call.id, "function": call.function} if call else {}
        read = [
            kinds.get(message.role, chat.ChatMessageUser)(
                content=message.content, **(named if message.role == "tool" else {})
            )
            for message in turn.messages
        ]
        own = turn.call
        call = own and tool.ToolCall(
            id=f"call-{turn.conversation}-{number}", function=own.name, arguments=own.arguments
        )
        thoughts = [chat.ContentReasoning(reasoning=turn.reasoning)] if turn.reasoning else []
        content = [*thoughts, chat.ContentText(text=turn.text)]
        yield turn, read, chat.ChatMessageAssistant(content=content, tool_calls=[call] if call else None)


def _events(answers: Sequence[tuple[Turn, list[Any], Any]], model: str, started: float) -> Iterator[Any]:
    """Yield an event for each answer, and one for the call in it.

    The input of an answer's event has only the messages since the answer before it: whole inputs would grow
    with the square of an episode's length. A call's result is the reply that the model read.

    Args:
        started: start of the episode in Unix seconds. An event's time adds the seconds of the answers before.
    """
    chat, events = import_module("inspect_ai.model"), import_module("inspect_ai.event")
    replies = {
        message.tool_call_id: message for _, read, _ in answers for message in read if message.role == "tool"
    }
    seconds = 0.0
    for turn, read, written in answers:
        times = {"timestamp": timestamp(started + seconds), "working_start": seconds}
        seconds += turn.seconds
        yield events.ModelEvent(
            model=model,
            role=turn.role,
            input=read,
            tools=[],
            tool_choice="any",
            config=chat.GenerateConfig(),
            output=chat.ModelOutput(
                model=model,
                choices=[chat.ChatCompletionChoice(message=written)],
                usage=_usage(turn.usage),
                time=turn.seconds,
            ),
            error=turn.error,
            completed=timestamp(started + seconds),
            **times,
        )
        for call in written.tool_calls or []:
            reply = replies.get(call.id)
            yield events.ToolEvent(
                id=call.id,
                function=call.function,
                arguments=call.arguments,
                result=reply.text if reply else "",
                message_id=reply.id if reply else None,
                **times | {"timestamp": timestamp(started + seconds)},
            )


def _usage(usage: Usage) -> Any:
    """Return the usage in Inspect's counts: `input_tokens` excludes tokens from the cache."""
    chat = import_module("inspect_ai.model")
    return chat.ModelUsage(
        input_tokens=usage.uncached,
        input_tokens_cache_read=usage.cached,
        output_tokens=usage.completion,
        reasoning_tokens=usage.reasoning,
        total_tokens=usage.prompt + usage.completion,
    )
