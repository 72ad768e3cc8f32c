"""Running code that nobody has read: skills, and programs of an inducer (docs/sandbox.md)."""
