"""Processes that wait for results, for `awaiting`: they are forked, so that many start within a few seconds.

Their arguments: the URL of the server, the queue, the number of processes, and how many results each waits for. The
message with the id `r7` has the result 7, and what a process waits for is spread over all. Exits with 1 if a process
did not get its results.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys

import redis.asyncio  # noqa: F401 - loaded once, before they are forked

from delayq import AsyncDelayQueue

TIMEOUT = "5m"


async def wait_for(url: str, name: str, numbers: range) -> None:
    """Wait for the results of messages, all at once; raises if one is wrong."""
    # Only the socket timeout and the renewal of what it waits for end a blocking read that brings nothing.
    async with AsyncDelayQueue(name, url=url, socket_timeout="1h") as queue:
        results = await asyncio.gather(*(queue.result(f"r{number}", timeout=TIMEOUT) for number in numbers))
    if results != [*numbers]:
        raise AssertionError(f"wrong results of {numbers}")


def main(url: str, name: str, processes: int, each: int) -> int:
    """Wait in so many processes; returns 1 if one of them failed."""
    context = multiprocessing.get_context("fork")
    waiting = [
        context.Process(target=_run, args=(url, name, range(number, processes * each, processes)))
        for number in range(processes)
    ]
    for process in waiting:
        process.start()
    for process in waiting:
        process.join()
    return int(any(process.exitcode for process in waiting))


def _run(url: str, name: str, numbers: range) -> None:
    asyncio.run(wait_for(url, name, numbers))


if __name__ == "__main__":
    url, name, *numbers = sys.argv[1:]
    sys.exit(main(url, name, *map(int, numbers)))
