"""Rights in Redis for each role, derived from the scripts and commands that the role uses."""
