"""The bundled models' folders. A recipe builds each once in a clone, for tests of every tier."""

from __future__ import annotations

import fcntl
from functools import cache

from serving.model_configs import CHECKOUT, load_model_config
from serving.weights import prepare


@cache
def bundled_folder(name: str) -> str:
    """Return the folder of a bundled model, built on first use, by one of pytest's workers only."""
    lock = CHECKOUT / ".cache" / f"{name}.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return prepare(load_model_config(name), lambda line: None)
