"""Clusters: Slurm jobs and their nodes."""
