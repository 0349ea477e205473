"""What a stored message has besides its payload."""
