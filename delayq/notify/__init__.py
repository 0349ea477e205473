"""Notifications without code: tells people what goes wrong in a queue, at least once and not too often."""
