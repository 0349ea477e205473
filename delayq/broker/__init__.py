"""Everything that talks to Redis: keys, scripts, and the calls that run them."""
