"""Many subjects, each one task with one atomic result: the list, the plan, the runs, and what comes out of all."""
