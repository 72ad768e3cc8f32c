"""Errors between a conversation and its engine, each with a message of one line for users."""

from __future__ import annotations


class ServingError(Exception):
    """Base of every error that `serving` raises on purpose."""


class InvalidModelConfig(ServingError):
    """A model config is missing or unreadable, or has an invalid value."""


class InvalidTool(ServingError):
    """A tool's signature or schema uses something that tool calls do not support."""


class ServerFailed(ServingError):
    """The server did not start, or could not be reached."""


class EngineDead(ServingError):
    """The engine stopped answering, or it refuses the API key."""


class ServerDied(EngineDead):
    """A server that we started has died, or was ended because it hung; a new one may work."""


class RequestRefused(ServingError):
    """The engine refused a request for a reason that a retry would not fix (400, 404).

    Attributes:
        status: the HTTP status; 0 for none.
        is_filtered: whether the provider says that its content is the reason.
    """

    def __init__(self, message: str, status: int = 0, *, is_filtered: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.is_filtered = is_filtered


class ContentRefused(RequestRefused):
    """A provider that answers other requests refused this one: for its content."""


class RequestFailed(ServingError):
    """A request failed on every try although the engine runs."""


class ContextOverflow(ServingError):
    """The conversation no longer fits the model's context."""


class InvalidCall(ServingError):
    """The answer has no complete, schema-valid tool call. `text` is what the model wrote."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class TruncatedCall(InvalidCall):
    """The answer was truncated at its token limit before the call was complete."""


class SpendingCapReached(ServingError):
    """The next request could exceed the spending cap."""
