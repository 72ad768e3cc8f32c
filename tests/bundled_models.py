"""The bundled models' folders. A recipe builds each once in a clone, for tests of every tier."""

from __future__ import annotations

from serving.model_configs import load_model_config
from serving.weights import prepare


def bundled_folder(name: str) -> str:
    """Return the folder of a bundled model, built on first use."""
    return prepare(load_model_config(name), lambda line: None)
