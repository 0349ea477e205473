"""What the commands do with each engine."""
