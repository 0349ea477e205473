"""Commands that consume queues."""
