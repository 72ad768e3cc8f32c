"""What people read of a run: checkpoints, tables, costs."""
