"""Builds the folder of the bundled CPU model: a small Qwen3 with its own tokenizer and chat template.

    python models/random/build.py --out DIR

The weights (about 2M) are random. The same recipe and library versions give the same bytes. A single rename
creates DIR when the folder is complete. A second call with the same recipe changes nothing.
"""

from recipe import run_bundled

if __name__ == "__main__":
    run_bundled(
        __file__,
        "template.jinja",
        "Qwen3ForCausalLM",
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        dtype="float32",
    )
