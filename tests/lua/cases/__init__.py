"""A table of cases for every mutating script, each in the file of its name."""
