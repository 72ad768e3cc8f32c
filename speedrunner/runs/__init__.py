"""Plan, set up, play and resume runs."""
