"""Every method by its name."""
