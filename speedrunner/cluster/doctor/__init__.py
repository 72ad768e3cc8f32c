"""Whether a machine can play what a configuration names: checks, each of which says what to do."""
