"""streaQ: ten tasks at a time in one event loop."""

from datetime import timedelta

from measuring import delay_to, handled, main, on_loop, text_of
from streaq import Worker

CHUNK = 1000


class Streaq:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        options = {"use_uvloop": True}
        self._worker = Worker(redis_url=url, queue_name="peers", concurrency=10, anyio_kwargs=options)

        async def handle(text: str) -> None:
            handled(text)

        self._task = self._worker.task()(handle)

    @on_loop
    async def send(self, texts: list[str]) -> None:
        async with self._worker:
            for text in texts:
                await self._task.enqueue(text)

    @on_loop
    async def send_bulk(self, texts: list[str]) -> None:
        async with self._worker:
            for first in range(0, len(texts), CHUNK):
                await self._worker.enqueue_many([self._task.enqueue(text) for text in texts[first : first + CHUNK]])

    @on_loop
    async def send_later(self, dues: list[float]) -> None:
        async with self._worker:
            for due in dues:
                await self._task.enqueue(text_of(due)).start(delay=timedelta(seconds=delay_to(due)))

    def work(self) -> None:
        self._worker.run_sync()


main(Streaq)
