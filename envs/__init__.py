"""Text environments: their primitives, texts, outcomes and splits. This package does not know language
models.

`from envs import ...` has everything that an environment needs. `TextEnv` is the contract.
"""

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
from envs.conformance import check_env
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
    "check_env",
    "make",
    "splits",
]
