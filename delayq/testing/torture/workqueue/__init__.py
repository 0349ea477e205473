"""A work queue under torture: how it is used, what of that is put down, and what is left of it in the end."""
