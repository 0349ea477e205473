"""Privacy: payloads encrypted in Redis (extra `crypto`), and fields hidden from whoever inspects a queue."""
