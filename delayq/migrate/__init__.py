"""Migration from other libraries: moves queues of Go's `hdt3213/delayqueue`, Celery and rq to delayq."""

from delayq.migrate.migration import LeasedError, Migration, migrate
from delayq.migrate.moving import migrate_from

__all__ = ["LeasedError", "Migration", "migrate", "migrate_from"]
