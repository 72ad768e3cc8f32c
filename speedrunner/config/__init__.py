"""The configuration: its typed records, their checks, and its composition from `configs/`."""
