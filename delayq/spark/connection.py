"""Where Spark's processes get their connection to Redis: one for each process and URL, kept between tasks.

A reader or a writer is pickled and sent to executors, so it holds a `Target` and asks here for the rest.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from delayq.calls import Calls
from delayq.config import QueueOptions, read_settings
from delayq.keys import Keys
from delayq.spark.options import Target

if TYPE_CHECKING:
    from delayq.executor import Executor

_EXECUTORS: dict[tuple[int, str], Executor] = {}


def connect(target: Target) -> Executor:
    """Return what carries calls out on the Redis of a target; made at the first use in a process."""
    # By process, since Spark's workers are forks: what the parent had open is not theirs.
    place = (os.getpid(), target.url)
    executor = _EXECUTORS.get(place)
    if executor is None:
        from delayq.executor import open_executor  # loads redis

        options = QueueOptions(url=target.url)
        executor = _EXECUTORS.setdefault(place, open_executor(options, read_settings(options)))
    return executor


@lru_cache(maxsize=64)
def calls_of(target: Target) -> Calls:
    """Return the calls of the queue that a target names."""
    return Calls(Keys.of(target.prefix, target.queue))
