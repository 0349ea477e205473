"""A worker process that tests kill at any time. Arguments: URL, name. It adds completed ids to the list `done`."""

from __future__ import annotations

import os
import sys

import redis

from delayq.workqueue import WorkQueue


def main() -> None:
    """Work until killed."""
    with redis.Redis.from_url(sys.argv[1]) as db:
        queue = WorkQueue("jobs")
        while True:
            item = queue.lease(db, 0.3)
            assert item is not None
            assert item.data() == item.id().encode()
            if int(item.id()) % 10 == 0 and not db.sismember("died", item.id()):
                db.sadd("died", item.id())
                os.kill(os.getpid(), 9)
            if queue.complete(db, item):
                db.rpush("done", item.id())


if __name__ == "__main__":
    main()
