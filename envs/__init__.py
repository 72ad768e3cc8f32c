"""Text environments: their primitives, texts, outcomes and splits. Nothing here knows of language models."""

from envs.base import EnvironmentFault as EnvironmentFault
from envs.base import EpisodeOver as EpisodeOver
from envs.base import InvalidOption as InvalidOption
from envs.base import InvalidPrimitiveCall as InvalidPrimitiveCall
from envs.base import Limits as Limits
from envs.base import Opening as Opening
from envs.base import Outcome as Outcome
from envs.base import Primitive as Primitive
from envs.base import Split as Split
from envs.base import Task as Task
from envs.base import TextEnv as TextEnv
from envs.base import UnknownEnvironment as UnknownEnvironment
from envs.base import UnknownTask as UnknownTask
from envs.registry import make as make
from envs.registry import splits as splits
