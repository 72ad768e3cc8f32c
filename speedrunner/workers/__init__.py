"""Workers: one process per slot that owns an environment, the budgets and the call tree."""
