"""The coding agent that edits a skill library from stored trajectories (paper, section 3)."""
