"""rq: its SimpleWorker runs one job at a time, in its own process, where its usual worker forks one for each job."""

from collections.abc import Iterable
from datetime import timedelta

from measuring import delay_to, main, text_of
from redis import Redis
from rq import Queue
from rq.worker import SimpleWorker

HANDLER = "measuring.handled"
"""A job is found by its path."""
CHUNK = 1000


class Rq:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(url)
        self._queue = Queue("peers", connection=self._redis)

    def send(self, texts: list[str]) -> None:
        for text in texts:
            self._queue.enqueue(HANDLER, text)

    def send_bulk(self, texts: list[str]) -> None:
        for first in range(0, len(texts), CHUNK):
            self._queue.enqueue_many(
                [Queue.prepare_data(HANDLER, (text,)) for text in texts[first : first + CHUNK]],
            )

    def send_later(self, dues: Iterable[float]) -> None:
        for due in dues:
            self._queue.enqueue_in(timedelta(seconds=delay_to(due)), HANDLER, text_of(due))

    def work(self) -> None:
        worker = SimpleWorker([self._queue], connection=self._redis)
        worker.work(with_scheduler=True, logging_level="WARNING")


main(Rq)
