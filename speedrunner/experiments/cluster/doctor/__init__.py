"""Checks whether a machine can play a configuration. Each check says what to do."""
