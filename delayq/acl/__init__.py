"""Rights in Redis for each role: a file of access rules a role, and what fills them in."""
