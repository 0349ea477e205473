"""The limit of a whole queue, shared out to its partitions by what waits in each."""
