"""What a queue has now, read in bulk."""
