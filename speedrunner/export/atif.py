"""Export a run as ATIF 1.8 trajectories, from which `speedrunner import` rebuilds it bit for bit.

    trajectories/batch_0000/00001-0000.json  line 1 of the batch, conversation 0
    evaluations/0050/00001-0000.json         the same for test episodes
    sleeps/0001/agent-0000.json              an agent of a sleep
    sleeps/0001/attempt-0000-0000.json       an episode that a sleep played
    carried/0000/trajectories/...            the same for the training history that the run carries
    records/                                 records that are no conversation, unchanged: configuration,
                                             policies, ledger, processes, checksums

The first document of an episode or a sleep also has the record without its turns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import msgspec

from serving.tokens.tools import ToolSpec
from serving.usage import Usage
from speedrunner.config.names import condition_name
from speedrunner.export.atif_records import (
    CONVERSATIONS,
    FORMAT,
    SCHEMA,
    Documents,
    Note,
    episode_of,
    sleep_of,
    validate,
)
from speedrunner.export.atif_steps import NAME, PROMPT_IDS, Json, has_long_prompts, steps_of
from speedrunner.store import files, json_lines, json_records
from speedrunner.store.checksums import recorded_files
from speedrunner.store.records import Message, SleepRecord, Trajectory
from speedrunner.store.run_data import RunData, load

UNRECORDED_TOOLS = "The run has no record of the tools that this conversation was offered."

LONG_PROMPTS = (
    f"The prompts of this conversation have more than {PROMPT_IDS:,} tokens in total: prompt_token_ids is"
    " left out. extra.speedrunner.rest.token_ids of each answer has the ids, each once."
)


def write_trajectories(path: Path, folder: Path, with_ids: bool = False) -> int:
    """Write a run into a folder, which is created. Return the number of trajectories.

    Args:
        with_ids: whether steps have the token ids of their requests. If the run did not record them, it is
            not exported.

    Raises:
        NotInstalled: the package `atif` is missing.
        StorageError: the run cannot be read, has values that ATIF cannot hold, or the disk refuses.
        InvalidConfig: the run's configuration cannot be read.
    """
    run = load(path)
    made: dict[str | None, _Exported] = {}
    count = 0
    with files.explain_errors(folder, "written"):
        for name in _names(run):
            found = CONVERSATIONS.fullmatch(name.rpartition(".")[0])
            if found is None:
                target = folder / "records" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                _copy(path / name, target)
                continue
            target = folder / found[0]
            target.mkdir(parents=True, exist_ok=True)
            if (carried := found[1]) not in made:
                made[carried] = _Exported(RunData(path / carried) if carried else run, with_ids)
            for key, document in made[carried].documents(path / name):
                content, where = msgspec.json.encode(document), f"{path / name}, as trajectory {key},"
                if len(content) > files.RECORD_BYTES:
                    raise files.StorageError(f"{where} has more than {files.RECORD_BYTES} bytes")
                json_records.check_depth(content, where)
                (target / f"{key}.json").write_bytes(content)
                count += 1
    if with_ids and not any(each.has_ids for each in made.values()):
        raise files.StorageError(
            f"{path} has no token ids: only runs with serving.token_ids=true record them"
        )
    return count


def _names(run: RunData) -> Iterator[str]:
    """Yield the names of the run's record files.

    `state.json` comes first, and the others are listed after it. While the run continues, its checksums then
    cover no more than these files contain.
    """
    if run.files.state.exists():
        yield run.files.state.name
    unfinished = (each.name for each in (run.files.sleep_journal, run.files.reading) if each.exists())
    yield from sorted([*recorded_files(run.path), *unfinished])


def _copy(source: Path, target: Path) -> None:
    """Copy a record file, without a torn tail."""
    with target.open("wb") as file:
        if source.suffix == ".jsonl":
            file.writelines(line + b"\n" for line in json_lines.raw_lines(source))
        else:
            file.write(files.read_content(source))


class _Exported:
    """The documents of one run, with what they take from its other records."""

    def __init__(self, run: RunData, with_ids: bool) -> None:
        self._run = run
        self._with_ids = with_ids
        self.has_ids = False
        names = condition_name(run.settings)
        self._about = {"environment": names.env, "method": names.method}

    def documents(self, path: Path) -> Iterator[tuple[str, Json]]:
        """Yield the documents of a record file with their names.

        Raises `StorageError`, also if the documents do not give the same record.
        """
        if path.suffix == ".json":
            content = files.read_content(path)
            json_records.as_record(content, SleepRecord, path)
            yield from self._checked(self._sleep(msgspec.json.decode(content)), sleep_of, content, str(path))
            return
        for number, _, line in json_lines.iterate_lines(path):
            where = f"{path}, line {number},"
            json_records.as_record(line, Trajectory, where)
            found = self._episode(msgspec.json.decode(line), f"{number:05d}-")
            yield from self._checked(found, episode_of, line, where)

    def _checked(
        self, found: Documents, rebuild: Callable[[Documents], bytes], content: bytes, where: str
    ) -> Iterator[tuple[str, Json]]:
        for key, document in found.items():
            validate(document, f"{where} as trajectory {key}")
        if rebuild(found) != content:
            raise files.StorageError(f"{where} has values that a trajectory cannot hold without loss")
        yield from found.items()

    def _episode(self, record: Json, prefix: str) -> Documents:
        """Return the documents of an episode, one for each conversation."""
        turns = sorted(enumerate(record["turns"]), key=lambda each: each[1].get("conversation", 0))
        talks = [list(each) for _, each in groupby(turns, key=lambda each: each[1].get("conversation", 0))]
        outcome = record["outcome"] or {}
        end = {
            "termination": record["termination"],
            **{key: outcome.get(key) for key in ("score", "success")},
        }
        found: Documents = {}
        for number, talk in enumerate(talks or [[]]):
            first = None if number else {**record, "turns": []}
            role = talk[0][1].get("role", "actor") if talk else "actor"
            key = f"{record['episode']}, attempt {record['attempt']}, conversation {number}"
            tools = self._tools(role, record["policy"], talk, record.get("prompt_hash", ""))
            note = Note(format=FORMAT, episode=first)
            found[f"{prefix}{number:04d}"] = self._document(key, role, talk, tools, note, end)
        return found

    def _sleep(self, record: Json) -> Documents:
        """Return the documents of a sleep: of its agents, and of the episodes that it played."""
        found: Documents = {}
        rest: Json | None = {name: [] if name in ("agents", "attempts") else record[name] for name in record}
        for number, agent in enumerate(record["agents"] or [None]):
            role, turns = (agent["role"], agent["turns"]) if agent else ("inducer", [])
            own = {**agent, "turns": []} if agent else None
            key = f"sleep {record['sleep']}, attempt {record['attempt']}, agent {number}"
            end = {"termination": agent["termination"]} if agent else {}
            tools = self._tools(role, record["sleep"] - 1, [], "")
            note = Note(format=FORMAT, sleep=rest, agent=own)
            found[f"agent-{number:04d}"] = self._document(key, role, list(enumerate(turns)), tools, note, end)
            rest = None
        for number, episode in enumerate(record.get("attempts", [])):
            found |= self._episode(episode, f"attempt-{number:04d}-")
        return found

    def _document(
        self,
        key: str,
        role: str,
        turns: list[tuple[int, Json]],
        tools: list[ToolSpec] | None,
        note: Note,
        end: Json,
    ) -> Json:
        """Return the trajectory of one conversation."""
        model = self._models.get(role, self._models["inducer"])
        usages = (msgspec.convert(turn["usage"], Usage) for _, turn in turns)
        usage = sum(usages, Usage())
        prices = self._run.prices.get(model)
        self.has_ids |= any("token_ids" in turn for _, turn in turns)
        steps = steps_of(turns, self._times, prices, self._with_ids)
        agent: Json = {"name": "speedrunner", "version": version("speedrunner"), "model_name": model}
        metrics: Json = {
            "total_prompt_tokens": usage.prompt,
            "total_completion_tokens": usage.completion,
            "total_cached_tokens": usage.cached,
            "total_steps": len(steps),
            "extra": {"reasoning_tokens": usage.reasoning, **end},
        }
        if prices is not None:
            metrics["total_cost_usd"] = prices.cost(usage)
        notes: list[str] = []
        if tools is None:
            notes.append(UNRECORDED_TOOLS)
        else:
            agent["tool_definitions"] = [each.openai for each in tools]
        if self._with_ids and has_long_prompts(turns):
            notes.append(LONG_PROMPTS)
        return {
            "schema_version": SCHEMA,
            "session_id": self._run.path.name,
            "trajectory_id": key,
            "agent": {**agent, "extra": {"role": role, **self._about}},
            "steps": steps,
            **({"notes": " ".join(notes)} if notes else {}),
            "final_metrics": metrics,
            "extra": {NAME: msgspec.to_builtins(note)},
        }

    def _tools(
        self, role: str, policy: int, turns: list[tuple[int, Json]], digest: str
    ) -> list[ToolSpec] | None:
        """Return the tools of a conversation, if the run recorded them. Of several lists of a role, the
        digest of an actor's first prompt names the one that was offered."""
        known = self._offered.get((role, policy), [])
        if len(known) > 1 and turns:
            messages = msgspec.convert(turns[0][1]["messages"], list[Message])
            known = [
                each
                for each in known
                if hashlib.sha256(msgspec.json.encode([messages, each])).hexdigest() == digest
            ]
        return known[0] if len(known) == 1 else None

    @cached_property
    def _offered(self) -> dict[tuple[str, int | None], list[list[ToolSpec]]]:
        found: dict[tuple[str, int | None], list[list[ToolSpec]]] = {}
        for row in self._run.tools:
            found.setdefault((row.role, row.policy), []).append(row.tools)
        return found

    @cached_property
    def _times(self) -> dict[str, float]:
        return {row.request: row.time for row in self._run.ledger}

    @cached_property
    def _models(self) -> dict[str, str]:
        """Return the names of the models of the actor and of all other roles."""
        process = next(reversed(self._run.processes), None)
        if process is None:
            model = self._run.settings.model
            return {"actor": model.name, "inducer": model.inducer_name or model.name}
        return {"actor": process.actor.name, "inducer": process.inducer.name}
