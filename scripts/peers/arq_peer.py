"""arq: at most ten jobs at a time in one event loop; it looks for jobs each half second, a hundred at a time."""

from collections.abc import Iterable
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from measuring import delay_to, handled_async, main, on_loop, text_of


async def _handle(_: dict[str, Any], text: str) -> None:
    await handled_async(text)


class Arq:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._settings = RedisSettings.from_dsn(url)

    @on_loop
    async def send(self, texts: list[str]) -> None:
        pool = await create_pool(self._settings)
        for text in texts:
            await pool.enqueue_job("handle", text)

    send_bulk = send

    @on_loop
    async def send_later(self, dues: Iterable[float]) -> None:
        pool = await create_pool(self._settings)
        for due in dues:
            await pool.enqueue_job("handle", text_of(due), _defer_by=delay_to(due))

    @on_loop
    async def work(self) -> None:
        worker = Worker([func(_handle, name="handle")], redis_settings=self._settings, max_jobs=10)
        await worker.async_run()


main(Arq)
