"""Runs that a strong model has played, recorded to be played again."""
