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
        for point in list_rows(average_tests(frame_episodes(run.episodes))):
            if not (played := run.evaluations(point["checkpoint"])):
                continue  # a damaged run may have only summary rows
            file = folder / f"{name}-{point['checkpoint']:04d}.eval"
            inspect.write_eval_log(_log(inspect, run, point, played), str(file))
            written.append(file)
    return written


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
    usage = {config.model.name: _usage(sum((trajectory.usage for trajectory in played), Usage()))}
    return inspect.EvalLog(
        status="success" if len(played) >= config.run.test_episodes else "started",
        eval=inspect.EvalSpec(
            created=timestamp(started),
            task=task,
            task_args={"checkpoint": checkpoint, **names},
            dataset=inspect.EvalDataset(
                name=names["env"],
                samples=len(played),
                sample_ids=[trajectory.episode for trajectory in played],
            ),
            model=config.model.name,
            config=inspect.EvalConfig(),
            metadata={
                "run": run.path.name,
                "configuration": to_mapping(config),
                "caveats": caveats([run]),
            },
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
        stats=inspect.EvalStats(
            started_at=timestamp(started), completed_at=timestamp(ended), model_usage=usage
        ),
        samples=[_sample(inspect, trajectory, config.model.name) for trajectory in played],
    )


def _sample(inspect: Any, trajectory: Trajectory, model: str) -> Any:
    scoring = import_module("inspect_ai.scorer")
    outcome, task = trajectory.outcome, trajectory.task
    conversations = of_episode(trajectory)
    messages = [message for conversation in conversations for message in _messages(conversation.turns)]
    prompts = (
        message.content for turn in trajectory.turns for message in turn.messages if message.role == "user"
    )
    score = outcome and scoring.Score(value=outcome.score, metadata={"success": outcome.success})
    error = None
    if outcome is None:
        whole = trajectory.error or trajectory.fault
        error = inspect.EvalError(message=trajectory.fault, traceback=whole, traceback_ansi=whole)
    return inspect.EvalSample(
        id=trajectory.episode,
        epoch=1,
        input=next(prompts, ""),
        target="",
        messages=messages,
        scores=score and {SCORER: score},
        metadata={
            "task": task.name,
            "index": task.index,
            "termination": str(trajectory.termination),
            "policy": trajectory.policy,
            "attempt": trajectory.attempt,
        },
        model_usage={model: _usage(trajectory.usage)},
        total_time=trajectory.seconds,
        error=error,
    )


def _messages(turns: Sequence[Turn]) -> Iterator[Any]:
    """Yield the messages in Inspect's types; a tool's reply names the call before it."""
    chat = import_module("inspect_ai.model")
    tool = import_module("inspect_ai.tool")
    kinds = {"system": chat.ChatMessageSystem, "user": chat.ChatMessageUser}
    call = None
    for number, turn in enumerate(turns):
        for message in turn.messages:
            if message.role == "tool":
                yield chat.ChatMessageTool(
                    content=message.content,
                    tool_call_id=call.id if call else None,
                    function=call.function if call else None,
                )
            else:
                yield kinds.get(message.role, chat.ChatMessageUser)(content=message.content)
        own = turn.call
        call = own and tool.ToolCall(id=f"call-{number}", function=own.name, arguments=own.arguments)
        content = [chat.ContentText(text=turn.text)]
        if turn.reasoning:
            content.insert(0, chat.ContentReasoning(reasoning=turn.reasoning))
        yield chat.ChatMessageAssistant(content=content, tool_calls=[call] if call else None)


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
