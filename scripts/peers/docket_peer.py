"""docket: ten tasks at a time in one event loop, set up as its guide does for production and for throughput."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from docket import Docket, Worker
from measuring import delay_to, handled_async, main, on_loop, text_of

CHECK = timedelta(milliseconds=100)
"""A worker whose ten places are taken sleeps for so long."""


async def _handle(text: str) -> None:
    await handled_async(text)


class DocketPeer:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _open(self) -> Docket:
        docket = Docket(name="peers", url=self._url, execution_ttl=timedelta(0))
        docket.register(_handle)
        return docket

    @on_loop
    async def send(self, texts: list[str]) -> None:
        async with self._open() as docket:
            for text in texts:
                await docket.add(_handle)(text)

    @on_loop
    async def send_bulk(self, texts: list[str]) -> None:
        async with self._open() as docket:
            await docket.add_many([docket.call(_handle)(text) for text in texts])

    @on_loop
    async def send_later(self, dues: Iterable[float]) -> None:
        async with self._open() as docket:
            for due in dues:
                await docket.add(_handle, when=datetime.now(UTC) + timedelta(seconds=delay_to(due)))(text_of(due))

    @on_loop
    async def work(self) -> None:
        async with (
            self._open() as docket,
            Worker(docket, concurrency=10, minimum_check_interval=CHECK) as worker,
        ):
            await worker.run_forever()


main(DocketPeer)
