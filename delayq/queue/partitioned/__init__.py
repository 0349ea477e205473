"""Partitioned queues: one queue spread over many hash slots, so that it may use every node of a Redis Cluster.

A partition is an ordinary queue by the name of `reminders#3`. `layout` says where an id goes, `partition` makes the
operations of one partition, `fan_out` runs those of several side by side, `merging` adds up what they return.
"""
