"""Commands for those who run the server, and the demos."""
