"""Privacy: payloads encrypted in Redis (extra `crypto`), and fields hidden from those who inspect a queue."""
