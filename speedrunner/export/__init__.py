"""Runs in the forms of others: a Hugging Face dataset, Inspect's logs."""
