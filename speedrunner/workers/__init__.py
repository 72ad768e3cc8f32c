"""Environment workers: one process per slot, which owns an environment, the budgets and the call tree."""
