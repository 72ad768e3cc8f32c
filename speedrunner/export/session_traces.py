"""Export conversations as session traces, JSON lines that the Hugging Face Hub shows in its trace viewer.

One file for each conversation, in the Session Trace Simple Format
(https://huggingface.co/docs/hub/session-traces-format): a header, then one line per message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import msgspec

from speedrunner.config.names import condition_name
from speedrunner.export.conversations import Conversation, Split, iterate_conversations
from speedrunner.store.files import explain_errors
from speedrunner.store.run_data import load


def write_session_traces(path: Path, folder: Path) -> int:
    """Write a run into a folder, which is created. Return the number of session traces.

    Raises:
        StorageError: the run cannot be read, or the folder cannot be written.
        InvalidConfig: the run's configuration cannot be read.
    """
    run = load(path)
    about = msgspec.structs.asdict(condition_name(run.settings)) | {"run": folder.name}
    times = {row.request: round(row.time * 1000) for row in run.ledger}
    count = 0
    with explain_errors(folder, "written"):
        folder.mkdir(parents=True)
        found = chain.from_iterable(iterate_conversations(run, split) for split in get_args(Split))
        for facts, conversation in found:
            key = facts["episode"]
            header = {
                "type": "session",
                "harness": "speedrunner",
                "id": f"{folder.name}/{key}/{conversation.number}",
                "name": f"{key}, {conversation.role} {conversation.number}",
                **about,
                **facts,
                "role": conversation.role,
                "usage": msgspec.to_builtins(conversation.usage),
            }
            lines = [header, *_messages(conversation, times)]
            file = folder / f"{key.replace('/', '-')}-{conversation.number:04d}.jsonl"
            file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            count += 1
    return count


def _messages(conversation: Conversation, times: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the lines of the messages. A tool's reply names the call before it."""
    call = ""
    for number, message in enumerate(conversation.messages):
        line: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.reasoning:
            line["reasoningContent"] = message.reasoning
        if message.role == "tool":
            line["toolCallId"] = call
        if message.call is not None:
            call = f"call-{number}"
            arguments = msgspec.json.encode(message.call.arguments).decode()
            line["toolCalls"] = [
                {"id": call, "function": {"name": message.call.name, "arguments": arguments}}
            ]
        if (moment := times.get(message.request)) is not None:
            line["timestamp"] = moment
        yield {"type": "message", "message": line}
