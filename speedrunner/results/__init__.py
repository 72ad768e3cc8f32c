"""Results of runs as data frames: tokens, costs, checkpoints, statistics, tables, and the paper's numbers."""
