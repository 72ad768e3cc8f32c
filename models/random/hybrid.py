"""Builds the bundled hybrid CPU model: linear attention and a mixture of experts, 1.6M random weights.

    python models/random/hybrid.py --out DIR

The architecture is Qwen3-Next's. It has the same layers as Qwen3.5 (three gated delta nets, then full
attention), and an engine without image support can load it. The chat template writes Qwen3.5's native tool
calls. The tokenizer is the same as in `build.py`.
"""

from recipe import run_bundled

if __name__ == "__main__":
    run_bundled(
        __file__,
        "hybrid.jinja",
        "Qwen3NextForCausalLM",
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        # Smaller linear heads do not work in vLLM's CPU build.
        linear_num_key_heads=2,
        linear_key_head_dim=128,
        linear_num_value_heads=2,
        linear_value_head_dim=128,
        # vLLM requires at least one layer with experts.
        mlp_only_layers=[0, 1, 2],
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=128,
        shared_expert_intermediate_size=128,
        tie_word_embeddings=False,  # tied, vLLM's Qwen3-Next leaves its output weights uninitialised
        dtype="bfloat16",
    )
