"""The schedules of a queue."""
