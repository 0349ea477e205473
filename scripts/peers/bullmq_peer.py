"""BullMQ for Python: ten jobs at a time in one event loop."""

import asyncio
import math
from collections.abc import Iterable
from typing import Any

from bullmq import Job, Queue, Worker
from measuring import delay_to, handled_async, main, on_loop, text_of

CHUNK = 1000


async def _handle(job: Job, _: str) -> None:
    await handled_async(job.data["text"])


class Bullmq:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._options: dict[str, Any] = {"connection": url}

    @on_loop
    async def send(self, texts: list[str]) -> None:
        queue = Queue("peers", self._options)
        for text in texts:
            await queue.add("handle", {"text": text})

    @on_loop
    async def send_bulk(self, texts: list[str]) -> None:
        queue = Queue("peers", self._options)
        jobs = [{"name": "handle", "data": {"text": text}} for text in texts]
        for first in range(0, len(jobs), CHUNK):
            await queue.addBulk(jobs[first : first + CHUNK])

    @on_loop
    async def send_later(self, dues: Iterable[float]) -> None:
        queue = Queue("peers", self._options)
        for due in dues:
            await queue.add("handle", {"text": text_of(due)}, {"delay": math.ceil(1000 * delay_to(due))})

    @on_loop
    async def work(self) -> None:
        Worker("peers", _handle, {**self._options, "concurrency": 10})
        await asyncio.Event().wait()


main(Bullmq)
