"""Algorithm 1: linearise the data term, split it from the regulariser, and solve the two in turn."""
