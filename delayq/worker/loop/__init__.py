"""The consumer's decisions, without clock, socket, thread or event loop."""
