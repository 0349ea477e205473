"""The pool of a worker, as other threads see it while queues come and go."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from delayq.worker.pool import Pool
from delayq.worker.pool_driver import PoolDriver


def test_nothing_hangs_while_there_are_no_queues_or_they_have_no_loops_yet():
    pool = Pool(1, strict=False)
    driver = PoolDriver(pool, [], "w", grace=1.0)
    seen = [driver.hung_since]

    class Coming(SimpleNamespace):
        def start(self) -> None:
            seen.append(driver.hung_since)  # as another thread would just then
            self.loop = SimpleNamespace(in_flight=SimpleNamespace(limits=SimpleNamespace(hung_since=5.0)))
            self.started = True
            seen.append(driver.hung_since)

    coming: Any = Coming(weight=1, started=False)
    pool.add([coming])
    pool.remove(coming)
    seen.append(driver.hung_since)
    assert seen == [math.inf, math.inf, 5.0, math.inf]
