"""The cost of Django's tasks: `enqueue` of the backend, compared with `send_delay_msg`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from delayq import DelayQueue
from delayq.broker.message.ids import new_id
from measure.bench_server import QUEUE, BenchServer, rate_of
from measure.figure import Figure, Measurement, Reading, at_least

PAYLOAD = {"args": [42], "kwargs": {"text": "hello"}, "enqueued": 1_800_000_000_000}
NAME = "measure.enqueuing.measured"


def measured(number: int, text: str = "") -> None:
    """Stand for a task."""


def _task(url: str) -> Any:
    """Return a task of Django whose backend sends to a server."""
    import django
    from django.conf import settings
    from django.test.utils import override_settings

    options = {"url": url, "retention": 0}
    tasks = {"default": {"BACKEND": "delayq.django.DelayqBackend", "QUEUES": [QUEUE], "OPTIONS": options}}
    if not settings.configured:
        settings.configure(USE_TZ=True, INSTALLED_APPS=["delayq.django"])
        django.setup()
    override_settings(TASKS=tasks).enable()
    from delayq.django import task

    return task(queue_name=QUEUE)(measured)


def enqueued(server: BenchServer) -> Iterator[Reading]:
    """Tasks per second, one after the other, compared with messages of the same payload, name and kind of id."""
    n = server.many(20_000)
    task = _task(server.url)

    def by_django() -> float:
        server.empty()
        task.enqueue(42, text="hello")
        return rate_of(n, lambda: [task.enqueue(42, text="hello") for _ in range(n)])

    def by_hand() -> float:
        server.empty()
        with DelayQueue(QUEUE, url=server.url) as queue:
            queue.send_delay_msg(PAYLOAD)
            return rate_of(n, lambda: [queue.send_delay_msg(PAYLOAD, name=NAME, id=new_id()) for _ in range(n)])

    yield Reading("enqueue", *server.compare(by_django, by_hand))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    figure = Figure(
        "enqueue", "`enqueue` of a Django task", at_least(0.7, "send_delay_msg"), reference_name="send_delay_msg"
    )
    return [Measurement("enqueue", enqueued, [figure])]
