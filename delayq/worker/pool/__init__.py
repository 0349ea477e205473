"""One consumer for many queues."""
