"""The engine: start it, reach it, meter it. Nothing here knows about skills or environments.

`from serving import ...` has everything about model configurations. The rest is in the modules.
"""

from serving.cards import list_cards, load_card
from serving.errors import InvalidCard
from serving.model_card import ModelCard, Role, Roles, ServerOptions
from serving.usage import Prices, Usage
from serving.weights import prepare

__all__ = [
    "InvalidCard",
    "ModelCard",
    "Prices",
    "Role",
    "Roles",
    "ServerOptions",
    "Usage",
    "list_cards",
    "load_card",
    "prepare",
]
