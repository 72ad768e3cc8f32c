"""Is the model config right? `speedrunner serve model=my_model.yaml --print` shows what it
starts.
"""

from __future__ import annotations

from pathlib import Path

from serving import load_model_config


def test_it_loads() -> None:
    model_config = load_model_config(str(Path(__file__).with_name("my_model.yaml")))
    assert model_config.name == "my_model"
