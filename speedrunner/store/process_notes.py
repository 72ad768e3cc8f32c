"""Notes on a run for its readers: what differs between its processes, and caveats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from serving.model_config import ModelConfig
from speedrunner.plain.plain_records import flat, shown_differences
from speedrunner.store.records import Process
from speedrunner.store.run_data import RunData

ACCEPTABLE = ("code.", "versions.", "model.server.")
"""Changes that a run accepts on request: not of settings or texts, but results may differ."""

HARMLESS = ("tried", "caveat", "gpus", "replicas", "prices", "path", "recipe", "api_key_env")
"""Fields of a model config that do not affect outputs. The files at `path` are compared."""

HARMLESS_FLAGS = ("max-num-seqs", "max-num-batched-tokens", "compilation-config")
"""Flags for the engine's batches and their CUDA graphs. They are derived from the GPU's memory, so a run has
other values on an H200 than on an H100. They do not change what the model may write, as the number of
requests in flight does not.
"""


def changes(before: Process, after: Process) -> list[str]:
    """Return the differences between two processes of one run, such as `model.roles.actor.temperature: 0.7 ->
    1`.

    Differences that cannot be accepted come first. Prices are not compared: a run is shown at those of its
    newest process.
    """
    lines = shown_differences(_flatten_notes(before), _flatten_notes(after))
    return sorted(lines, key=lambda line: line.startswith(ACCEPTABLE))


def caveats(runs: Iterable[RunData]) -> list[str]:
    """Return the caveats of the model configs, which roles do not reason, and which runs lack records of
    sleeps, without duplicates."""
    lines = set()
    for run in runs:
        slept = sum(step.startswith("sleep/") for step in run.state.finished)
        if (lost := slept - len(run.files.numbers("sleep"))) > 0:
            lines.add(f"{run.path.name}: {lost} of {slept} sleeps have no record, so their costs are missing")
        chosen = {group: run.config.get(group, {}) for group in ("method", "run")}
        learns = chosen["method"].get("name") != "react" and chosen["run"].get("rollouts") != 0
        for model_config in (process.model for process in run.processes):
            if model_config.caveat:
                lines.add(f"{model_config.name}: {model_config.caveat.rstrip('.')}")
            silent: dict[str, list[str]] = {}
            for role in ("actor", "inducer") if learns else ("actor",):
                if setting := _silencing_setting(model_config, role):
                    silent.setdefault(setting, []).append(role)
            for setting, roles in silent.items():
                lines.add(
                    f"{model_config.name}: no reasoning before calls of {' and '.join(roles)} ({setting})"
                )
    return sorted(lines)


def _silencing_setting(model_config: ModelConfig, role: str) -> str:
    """Return the setting that keeps a role from reasoning; "" without one."""
    own, flags = model_config.role(role), model_config.server.flags
    if model_config.api == "completions":
        return "" if own.thinking_tokens else "thinking_tokens=0"
    if model_config.hosted:
        return "reasoning_effort=none" if own.reasoning_effort == "none" else ""
    # Without a parser, vLLM's grammar of a required call begins with the first token.
    return "" if "reasoning-parser" in flags else "no reasoning-parser in server.flags"


def process_lines(processes: Sequence[Process]) -> list[str]:
    """Return a line for each process of a run that differs from the process before it."""
    return [
        f"Process {number} of {len(processes)} (from"
        f" {datetime.fromtimestamp(process.started):%Y-%m-%d %H:%M}) differs from the one before it:"
        f" {'; '.join(process.changes)}."
        for number, process in enumerate(processes, start=1)
        if process.changes
    ]


def _flatten_notes(process: Process) -> dict[str, Any]:
    """Return the values to compare, by dotted key."""
    content = msgspec.to_builtins(process)
    model = content["model"] = content.pop("actor")
    content["versions"].pop("code", None)  # a commit; the digests are more precise
    if python := content["versions"].get("python"):
        content["versions"]["python"] = ".".join(python.split(".")[:2])  # nodes differ in the patch version
    for name in HARMLESS:
        model.pop(name, None)
    for flag in HARMLESS_FLAGS:
        model["server"]["flags"].pop(flag, None)
    if url := model["base_url"]:
        model["base_url"] = urlsplit(url).hostname  # a port says nothing about the model
    for name in ("started", "host", "pid", "machine", "prices", "changes", "format"):
        content.pop(name, None)
    return flat(content)
