"""Commands that move many messages."""
