"""The skill library: one module of functions, the rules that they must keep, its edits and its texts."""
