"""Functions as tasks: their options, arguments and registry."""
