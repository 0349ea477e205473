"""The measurements of `make bench`, a room for each thing that is measured."""
