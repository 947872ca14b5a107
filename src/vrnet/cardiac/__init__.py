"""What only hearts have."""
