"""Where what is in a queue over partitions: how many it has, to which one an id belongs, and how they change.

A partition is an ordinary queue by the name of `reminders#3`. `fan_out` runs operations of several side by side.
"""
