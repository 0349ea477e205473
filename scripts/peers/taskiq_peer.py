"""taskiq on a Redis stream: ten tasks at a time in one event loop."""

from measuring import handled_async, main, on_loop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker


class Taskiq:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._broker = RedisStreamBroker(url, queue_name="peers", consumer_id="0")

        async def handle(text: str) -> None:
            await handled_async(text)

        self._task = self._broker.task(handle)

    @on_loop
    async def send(self, texts: list[str]) -> None:
        await self._broker.startup()
        for text in texts:
            await self._task.kiq(text)

    send_bulk = send

    @on_loop
    async def work(self) -> None:
        await run_receiver_task(self._broker, max_async_tasks=10)


main(Taskiq)
