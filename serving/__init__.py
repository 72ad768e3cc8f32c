"""The engine: start it, reach it, meter it. This package knows nothing about skills or environments.

`from serving import ...` has everything about model configs. The rest is in the modules.
"""

from serving.errors import InvalidModelConfig
from serving.model_config import ModelConfig, Role, Roles, ServerOptions
from serving.model_configs import list_model_configs, load_model_config
from serving.usage import Prices, Usage
from serving.weights import prepare
