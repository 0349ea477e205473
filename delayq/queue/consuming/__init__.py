"""Consumers that run in the background, leases without a callback, and stopping."""
