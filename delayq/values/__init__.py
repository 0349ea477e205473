"""Values without I/O: times, texts, codecs, outcomes, and how long to wait."""
