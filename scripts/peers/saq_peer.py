"""SAQ: ten jobs at a time in one event loop; it looks for delayed ones each second."""

from collections.abc import Iterable
from typing import Any

from measuring import handled_async, main, on_loop, text_of
from saq import Queue, Worker


async def _handle(_: dict[str, Any], *, text: str) -> None:
    await handled_async(text)


class Saq:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._queue = Queue.from_url(url, name="peers")

    @on_loop
    async def send(self, texts: list[str]) -> None:
        for text in texts:
            await self._queue.enqueue("handle", text=text)

    send_bulk = send

    @on_loop
    async def send_later(self, dues: Iterable[float]) -> None:
        for due in dues:
            await self._queue.enqueue("handle", text=text_of(due), scheduled=due)

    @on_loop
    async def work(self) -> None:
        await Worker(self._queue, [("handle", _handle)], concurrency=10).start()


main(Saq)
