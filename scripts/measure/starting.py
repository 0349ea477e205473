"""Starting: how long new processes take, with compiled modules."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from measure.bench_server import BenchServer
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_most

PROCESSES = 11
"""New processes per round; the reading is their median."""
IMPORT = "import time; began = time.perf_counter(); import delayq; print(time.perf_counter() - began)"
QUEUE = IMPORT.replace("import delayq", "from delayq import DelayQueue")
REDIS = IMPORT.replace("delayq", "redis")
HELP = "from delayq.cli import main; main()"
"""What the command `delayq` does."""


def starting(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds of `import delayq`, of loading its queue, of `import redis`, and of all of `delayq --help`."""
    count = PROCESSES if server.scale >= 1 else 3
    _run(QUEUE), _run(REDIS), _run(HELP, "--help")  # compiles the modules, and fills the file cache
    ours, queue, redis, whole = [], [], [], []
    for _ in range(count):
        ours.append(1000 * float(_run(IMPORT)))
        queue.append(1000 * float(_run(QUEUE)))
        redis.append(1000 * float(_run(REDIS)))
        began = time.perf_counter()
        _run(HELP, "--help")
        whole.append(1000 * (time.perf_counter() - began))
    yield Reading("import", statistics.median(ours))
    yield Reading("import_queue", statistics.median(queue))
    yield Reading("import_redis", statistics.median(redis))
    yield Reading("help", statistics.median(whole))


def _run(code: str, *words: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True, text=True).stdout


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    return [
        Measurement(
            "starting",
            starting,
            [
                Figure("import", "`import delayq`", at_most(120, MILLISECONDS), MILLISECONDS),
                Figure("import_queue", "`from delayq import DelayQueue`", None, MILLISECONDS),
                Figure("import_redis", "`import redis`, left to the first call", None, MILLISECONDS),
                Figure("help", "`delayq --help`, the whole process", at_most(300, MILLISECONDS), MILLISECONDS),
            ],
        )
    ]
