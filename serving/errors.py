"""What can go wrong between a conversation and its engine, each with one line for people."""

from __future__ import annotations


class ServingError(Exception):
    """Base of every error that `serving` raises on purpose."""


class InvalidModelConfig(ServingError):
    """A model config is missing, unreadable, or says something it must not."""


class InvalidTool(ServingError):
    """A tool's signature or schema uses something that tool calls do not support."""


class ServerFailed(ServingError):
    """The server did not start, or could not be reached."""


class EngineDead(ServingError):
    """The engine stopped answering and was not (or could not be) started again."""


class RequestRefused(ServingError):
    """The engine refused a request for a reason that a retry would not mend (400, 401, 404)."""


class RequestFailed(ServingError):
    """A request failed on every try although the engine lives."""


class ContextOverflow(ServingError):
    """The conversation no longer fits the model's context."""


class InvalidCall(ServingError):
    """The answer holds no complete, schema-valid tool call. `text` is what the model wrote."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class TruncatedCall(InvalidCall):
    """The answer was cut at its token limit before the call was complete."""


class SpendingCapReached(ServingError):
    """The next request could exceed the spending cap."""
