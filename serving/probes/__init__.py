"""Tests of a running engine: its tool calls and its prefix cache."""
