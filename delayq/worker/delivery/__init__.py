"""One delivery: the message, what its callback's result means, and what is logged of it."""
