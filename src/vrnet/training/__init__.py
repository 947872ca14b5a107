"""Training without labels."""
