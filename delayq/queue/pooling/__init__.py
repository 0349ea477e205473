"""One worker for many queues."""
