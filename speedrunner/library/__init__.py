"""The skill library: one module of functions, with its rules, edits and texts."""
