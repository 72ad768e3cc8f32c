"""What an engine really does with tool calls and its prefix cache."""
