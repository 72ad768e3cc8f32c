"""Clusters: jobs of Slurm, and the nodes on which they run."""
