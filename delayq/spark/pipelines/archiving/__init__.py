"""The archive of an event log."""
