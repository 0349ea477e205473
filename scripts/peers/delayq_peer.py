"""delayq itself by the same measure: ten threads, all else as it is by default."""

from collections.abc import Iterable

from measuring import delay_to, handled, main, text_of

from delayq import DelayQueue


class Delayq:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._queue = DelayQueue("peers", url=url, concurrency=10)

    def send(self, texts: list[str]) -> None:
        for text in texts:
            self._queue.send_delay_msg(text)

    def send_bulk(self, texts: list[str]) -> None:
        self._queue.send_many(texts)

    def send_later(self, dues: Iterable[float]) -> None:
        for due in dues:
            self._queue.send_delay_msg(text_of(due), delay_to(due))

    def work(self) -> None:
        self._queue.callback(lambda message: handled(message.payload))
        self._queue.start_consume()


main(Delayq)
