"""What a registration is worth."""
