"""Tables sent as messages."""
