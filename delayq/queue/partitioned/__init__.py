"""The queue objects over partitions: one queue spread over many hash slots, so that it may use every node of a cluster.

`partition` makes the operations of one partition, `routing` runs them on one or on all, `merging` adds up the results.
"""
