"""What scripts reply, and what is stored, as values."""
