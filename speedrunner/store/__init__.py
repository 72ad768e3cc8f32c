"""A run on disk: safe files, the lock, the directory and its records."""
