"""Text environments: their primitives, texts, outcomes and splits. Nothing here knows of language models."""

from envs.base import (
    EnvironmentFault,
    EpisodeOver,
    InvalidOption,
    InvalidPrimitiveCall,
    Limits,
    Opening,
    Outcome,
    Primitive,
    Split,
    Task,
    TextEnv,
    UnknownEnvironment,
    UnknownTask,
)
from envs.registry import make, splits

__all__ = [
    "EnvironmentFault",
    "EpisodeOver",
    "InvalidOption",
    "InvalidPrimitiveCall",
    "Limits",
    "Opening",
    "Outcome",
    "Primitive",
    "Split",
    "Task",
    "TextEnv",
    "UnknownEnvironment",
    "UnknownTask",
    "make",
    "splits",
]
