"""Finding and mending what is wrong in the keys of a queue."""
