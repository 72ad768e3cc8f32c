"""The skill library: functions, the rules they must keep, edits, and their commands."""
