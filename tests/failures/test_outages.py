"""Outages: a running consumer bears whatever a later try may mend, says so, and can be stopped meanwhile."""

from __future__ import annotations

import signal
import time

import pytest

from delayq import DelayQueue
from tests.failures.programs import assert_soon, program

pytestmark = pytest.mark.faults

THREADS = """
import logging, sys, time
from delayq import DelayQueue

logging.basicConfig(stream=sys.stdout, format="%(message)s")
queue = DelayQueue("reminders", url=sys.argv[1])

@queue.callback
def work(message):
    print("started", message.payload, flush=True)
    if message.payload == "slow":
        sys.stdin.readline()
        time.sleep(3)  # longer than a stop tries to reach Redis when nothing runs
        print("ended", flush=True)

queue.run()
print("left", flush=True)
"""
ASYNCIO = """
import asyncio, logging, sys
from delayq import AsyncDelayQueue

logging.basicConfig(stream=sys.stdout, format="%(message)s")

async def main():
    queue = AsyncDelayQueue("reminders", url=sys.argv[1])

    @queue.callback
    async def work(message):
        print("started", message.payload, flush=True)
        if message.payload == "slow":
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            await asyncio.sleep(3)
            print("ended", flush=True)

    await queue.run()
    print("left", flush=True)

asyncio.run(main())
"""
PROGRAMS = pytest.mark.parametrize("script", [THREADS, ASYNCIO], ids=["threads", "asyncio"])
GRACE = 30
"""The default, which a stop must not wait for."""


def read_until(process, text: str) -> str:
    """Return the first line of its output that contains a text."""
    return next(line for line in process.stdout if text in line)


@PROGRAMS
def test_idle_consumer_stops_at_once_although_redis_is_gone(start_redis, script):
    def stopping(_: int) -> float:
        server = start_redis()
        with DelayQueue("reminders", url=server.url) as queue, program(script, server.url) as process:
            queue.send_delay_msg("quick")
            read_until(process, "started quick")
            server.kill()
            read_until(process, "Redis does not answer")
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            read_until(process, "left")
            assert process.wait(60) == 0
            return time.monotonic() - began

    assert_soon(stopping, GRACE / 2)


@PROGRAMS
def test_stop_waits_for_a_running_callback_but_not_for_redis(start_redis, script):
    def stopping(_: int) -> float:
        server = start_redis()
        with DelayQueue("reminders", url=server.url) as queue, program(script, server.url) as process:
            queue.send_delay_msg("slow")
            read_until(process, "started slow")
            server.kill()
            read_until(process, "Redis does not answer")
            process.send_signal(signal.SIGTERM)
            process.stdin.write("\n")
            process.stdin.flush()
            began = time.monotonic()
            rest = process.stdout.read()
            assert rest.startswith("ended\n")
            assert "1 settlements unsent" in rest
            assert process.wait(60) == 0
            return time.monotonic() - began

    assert_soon(stopping, GRACE / 2)
