"""Export runs to other formats: a Hugging Face dataset, Inspect logs."""
