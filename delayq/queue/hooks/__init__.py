"""What a program has done around its sends and callbacks, and when messages end."""
