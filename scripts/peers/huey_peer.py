"""huey: ten worker threads in this process, and its scheduler, which looks each second."""

from collections.abc import Iterable

from huey import RedisHuey
from measuring import delay_to, handled, main, text_of


class Huey:
    """See `measuring.Peer`."""

    def __init__(self, url: str) -> None:
        self._huey = RedisHuey("peers", url=url)
        self._task = self._huey.task()(handled)

    def send(self, texts: list[str]) -> None:
        for text in texts:
            self._task(text)

    send_bulk = send

    def send_later(self, dues: Iterable[float]) -> None:
        for due in dues:
            self._task.schedule((text_of(due),), delay=delay_to(due))

    def work(self) -> None:
        self._huey.create_consumer(workers=10, worker_type="thread").run()


main(Huey)
