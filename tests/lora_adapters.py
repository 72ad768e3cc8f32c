"""An adapter with random weights for a bundled model, in PEFT's format."""

from __future__ import annotations

import json
from pathlib import Path

RANK = 4


def write_adapter(folder: Path, base: Path) -> Path:
    """Write an adapter of the attention of a Qwen3 model, large enough to change its answers."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((base / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    torch.manual_seed(1)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        key = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{key}.lora_A.weight"] = torch.randn(RANK, hidden)
        weights[f"{key}.lora_B.weight"] = 3 * torch.randn(heads, RANK)
    folder.mkdir(parents=True)
    save_file(weights, folder / "adapter_model.safetensors")
    described = {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "bias": "none", "task_type": "CAUSAL_LM"}
    own = {"base_model_name_or_path": str(base), "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(described | own))
    return folder
