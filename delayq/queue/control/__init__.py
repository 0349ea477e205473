"""What every process of a queue obeys: pauses, limits, and the registry of queues."""
