"""dramatiq: ten worker threads in this process, as its command starts them in each of its processes."""

import math
from collections.abc import Iterable

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from measuring import delay_to, handled, main, text_of


class Dramatiq:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._broker = RedisBroker(url=url)
        self._actor = dramatiq.actor(handled, broker=self._broker)

    def send(self, texts: list[str]) -> None:
        for text in texts:
            self._actor.send(text)

    def send_bulk(self, texts: list[str]) -> None:
        dramatiq.group([self._actor.message(text) for text in texts], broker=self._broker).run()

    def send_later(self, dues: Iterable[float]) -> None:
        for due in dues:
            self._actor.send_with_options(args=(text_of(due),), delay=math.ceil(1000 * delay_to(due)))

    def work(self) -> None:
        dramatiq.Worker(self._broker, worker_threads=10).start()


main(Dramatiq)
