"""The cost of Django's tasks: `enqueue`, compared with `send_delay_msg`; with an outbox, with a row by the ORM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from delayq import DelayQueue
from delayq.broker.message.ids import new_id
from measure.bench_server import QUEUE, BenchServer, rate_of
from measure.figure import Figure, Measurement, Reading, at_least

PAYLOAD = {"args": [42], "kwargs": {"text": "hello"}, "enqueued": 1_800_000_000_000}
FOLDER = TemporaryDirectory(prefix="delayq-bench-")
"""Where the database of Django is."""
IN_ONE = 100
"""Tasks that a transaction commits."""
NAME = "measure.enqueuing.measured"


def measured(number: int, text: str = "") -> None:
    """Stand for a task."""


def _task(url: str, **more: Any) -> Any:
    """Return a task of Django whose backend sends to a server."""
    import django
    from django.conf import settings
    from django.test.utils import override_settings

    options = {"url": url, "retention": 0, **more}
    tasks = {"default": {"BACKEND": "delayq.django.DelayqBackend", "QUEUES": [QUEUE], "OPTIONS": options}}
    if not settings.configured:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{FOLDER.name}/bench.db"}
        settings.configure(USE_TZ=True, INSTALLED_APPS=["delayq.django"], DATABASES={"default": database})
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


def outboxed(server: BenchServer) -> Iterator[Reading]:
    """Tasks per second whose rows transactions of SQLite commit, compared with the same rows by the ORM."""
    n = server.many(10_000)
    task = _task(server.url, enqueue="outbox")
    from django.core.management import call_command
    from django.db import connections, transaction

    from delayq.django.models import OutboxMessage

    call_command("migrate", "delayq", verbosity=0)
    texts = {"payload": b"x" * 96, "headers": b"", "attributes": b"name=" + NAME.encode()}

    def by_orm() -> None:
        values = {"queue": QUEUE, "message": new_id(), "operation": "send", "due": "0", "retries": 3, "inserted": 0}
        OutboxMessage.objects.create(**values, **texts)

    def rate(write: Callable[[], object]) -> float:
        OutboxMessage.objects.all().delete()

        def commit() -> None:
            for _ in range(n // IN_ONE):
                with transaction.atomic():
                    for _ in range(IN_ONE):
                        write()

        return rate_of(n, commit)

    by_django = partial(task.enqueue, 42, text="hello")
    yield Reading("enqueue_outbox", *server.compare(lambda: rate(by_django), lambda: rate(by_orm)))
    connections.close_all()


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    figure = Figure(
        "enqueue", "`enqueue` of a Django task", at_least(0.7, "send_delay_msg"), reference_name="send_delay_msg"
    )
    title = "`enqueue` with an outbox, SQLite"
    row = Figure("enqueue_outbox", title, at_least(0.7, "a row by the ORM"), reference_name="a row by the ORM")
    return [Measurement("enqueue", enqueued, [figure]), Measurement("enqueue_outbox", outboxed, [row])]
