"""Files and physical space."""
