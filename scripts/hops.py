"""Print the files and functions that an operation goes through, in the order of their first call.

    scripts/hops.py            every way: send, deliver, fail, schedule, list
    scripts/hops.py deliver    one of them

Each way runs on a throwaway server, once to warm up and once under a profile hook in every thread. `deliver` begins
when an idle consumer is woken for a message that is due, and ends when the message is acknowledged.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import redis
from click.testing import CliRunner

import delayq
from delayq import DelayQueue
from delayq.cli import main as cli
from delayq.testing.redis_server import RedisServer

PACKAGE = f"{Path(delayq.__file__).parent}/"
Hops = dict[str, dict[str, None]]


def hops(action: Callable[[Hops], object]) -> Hops:
    """Return the functions of delayq that an action calls, by file; the action may forget those of its preparations."""
    action({})
    found: Hops = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE):
            found.setdefault(path.removeprefix(PACKAGE), {}).setdefault(frame.f_code.co_qualname)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        action(found)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return dict(found)


@contextmanager
def untraced() -> Iterator[None]:
    """Do not trace what this thread does."""
    hook = sys.getprofile()
    sys.setprofile(None)
    yield
    sys.setprofile(hook)


def ways(url: str) -> dict[str, Callable[[Hops], object]]:
    """Return the actions that can be traced."""
    sending = DelayQueue[Any]("sending", url=url)
    delivering = DelayQueue[Any]("delivering", url=url, callback=lambda _: None)
    failing = DelayQueue[Any]("failing", url=url, nack_delay=0.05, callback=lambda _: False)
    recurring = DelayQueue[Any]("recurring", url=url)
    client = redis.Redis.from_url(url)

    def wait_for(condition: Callable[[], bool]) -> None:
        while not condition():
            time.sleep(0.01)

    def deliver(found: Hops) -> None:
        with untraced():
            delivering.start_consume()
            wait_for(lambda: any("b" in one["flags"] for one in client.client_list()))  # blocked: it waits
            found.clear()
            delivering.send_delay_msg("hello")
            wait_for(lambda: delivering.counts().living == 0)
            delivered = {path: functions.copy() for path, functions in found.copy().items()}
            delivering.stop_consume()
            found.clear()
            found.update(delivered)

    def fail(_: Hops) -> None:
        with untraced():
            failing.send_delay_msg("hello", id="hop", retries=0)
        failing.run(burst=True)
        failing.dead.redrive("hop")
        failing.cancel("hop")

    @recurring.every("1s")
    def fire(_: Any) -> None:
        recurring.stop_consume(0)

    return {
        "send": lambda _: sending.send_delay_msg("hello"),
        "deliver": deliver,
        "fail": fail,
        "schedule": lambda _: recurring.start_consume().wait(),
        "list": lambda _: CliRunner().invoke(cli, ["--url", url, "list", "sending"], catch_exceptions=False),
    }


def main() -> int:
    """Trace and print."""
    with RedisServer() as server:
        known = ways(server.url)
        wanted = sys.argv[1:] or [*known]
        if not {*wanted} <= {*known}:
            print(__doc__, file=sys.stderr)
            return 2
        for name in wanted:
            found = hops(known[name])
            print(f"{name}: {len(found)} files")
            for path, functions in found.items():
                print(f"  {path}: {', '.join(functions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
