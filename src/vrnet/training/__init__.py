"""Training, without labels or with them."""
