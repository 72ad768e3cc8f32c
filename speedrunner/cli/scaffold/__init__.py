"""What `speedrunner init` copies: something small of each kind that works, with its test."""
