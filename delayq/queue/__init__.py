"""What a queue object can do, one capability a file."""
