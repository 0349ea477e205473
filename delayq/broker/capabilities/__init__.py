"""The calls of each capability of the delay queue's engine."""
