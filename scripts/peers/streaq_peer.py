"""streaQ: ten tasks at a time in one event loop."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from measuring import delay_to, handled_async, main, on_loop, text_of
from streaq import Worker

CHUNK = 1000


async def _handle(text: str) -> None:
    await handled_async(text)


class Streaq:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _open(self) -> tuple[Worker, Any]:
        options = {"use_uvloop": True}
        worker = Worker(redis_url=self._url, queue_name="peers", concurrency=10, anyio_kwargs=options)
        return worker, worker.task()(_handle)

    @on_loop
    async def send(self, texts: list[str]) -> None:
        worker, task = self._open()
        async with worker:
            for text in texts:
                await task.enqueue(text)

    @on_loop
    async def send_bulk(self, texts: list[str]) -> None:
        worker, task = self._open()
        async with worker:
            for first in range(0, len(texts), CHUNK):
                await worker.enqueue_many([task.enqueue(text) for text in texts[first : first + CHUNK]])

    @on_loop
    async def send_later(self, dues: Iterable[float]) -> None:
        worker, task = self._open()
        async with worker:
            for due in dues:
                await task.enqueue(text_of(due)).start(delay=timedelta(seconds=delay_to(due)))

    def work(self) -> None:
        self._open()[0].run_sync()


main(Streaq)
