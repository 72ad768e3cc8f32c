"""Text environments: their primitives, texts, outcomes and splits. This package does not know language
models.

`from envs import ...` has everything that an environment needs. `TextEnv` is the contract.
"""

from envs.env_registry import make, splits
from envs.text_env import (
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
