"""Migration from other libraries: moves queues of Go's `hdt3213/delayqueue` to delayq."""

from delayq.migrate.migration import LeasedError, Migration, migrate

__all__ = ["LeasedError", "Migration", "migrate"]
