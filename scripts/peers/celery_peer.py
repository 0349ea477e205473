"""celery: ten worker threads in this process, and the prefetch that its guide advises for short tasks."""

from collections.abc import Iterable

from celery import Celery
from measuring import delay_to, handled, main, text_of

PREFETCH = 64


class CeleryPeer:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._app = Celery("peers", broker=url)
        self._app.conf.update(
            worker_prefetch_multiplier=PREFETCH,
            task_ignore_result=True,
            worker_hijack_root_logger=False,
            broker_connection_retry_on_startup=True,
        )
        self._task = self._app.task(handled, name="handled")

    def send(self, texts: list[str]) -> None:
        for text in texts:
            self._task.delay(text)

    def send_bulk(self, texts: list[str]) -> None:
        with self._app.producer_pool.acquire(block=True) as producer:
            for text in texts:
                self._task.apply_async((text,), producer=producer)

    def send_later(self, dues: Iterable[float]) -> None:
        for due in dues:
            self._task.apply_async((text_of(due),), countdown=delay_to(due))

    def work(self) -> None:
        options = ["--pool=threads", "--concurrency=10", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        self._app.worker_main(["worker", "--loglevel=WARNING", *options])


main(CeleryPeer)
