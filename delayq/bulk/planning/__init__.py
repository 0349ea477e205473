"""Reminders planned from a table."""
