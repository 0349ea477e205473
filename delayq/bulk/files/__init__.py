"""Files of messages and tables."""
