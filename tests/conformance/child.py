"""A process that sends a message, takes it, says its id, and holds it until it is killed: ENGINE URL."""

from __future__ import annotations

import signal
import sys

from tests.conformance.engines import ENGINES, SHORT
from tests.support.faces import Blocking


def main() -> None:
    """Hold a message until killed."""
    engine, url = sys.argv[1:]
    worker = ENGINES[engine](Blocking(), url)
    worker.send(b"of a process that dies")
    taken = worker.take(SHORT)
    assert taken is not None
    print(taken.id, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
