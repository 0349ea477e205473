"""A reliable delay queue for Python on Redis."""
