"""Spark as a consumer of a queue: claims messages for its batches, reads them, and settles them."""
