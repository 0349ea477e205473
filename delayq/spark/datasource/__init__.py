"""The data source `delayq`: reads and writes queues and event logs as tables."""
