"""Moves requests to Redis and replies back: connections, retries, cluster routing."""
