"""Plain values in and out: YAML, typed records, options, terminal text, findings, Slurm's answers."""
