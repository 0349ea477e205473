"""`manage.py delayq_worker`: runs the tasks of a backend."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from delayq.django.backend import DelayqBackend
from delayq.django.tasks_api import task_backends
from delayq.errors import DelayqError
from delayq.queue.pooling.worker import Worker


class Command(BaseCommand):
    """Runs tasks in threads until it is stopped."""

    help = "Run the tasks of a DelayqBackend until SIGTERM or Ctrl-C, which lets running tasks finish."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take which queues to serve, and how."""
        parser.add_argument("--backend", default="default", help="The backend in TASKS (default: %(default)s).")
        parser.add_argument("--queue", action="append", help="A queue to serve; repeat it for several (default: all).")
        parser.add_argument("--concurrency", type=int, help="Tasks that run at a time (default: that of the queues).")
        parser.add_argument("--burst", action="store_true", help="Return when nothing is due any more.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run; raise `CommandError`, one line, for what cannot be."""
        alias, names = options["backend"], options["queue"]
        try:
            backend = task_backends[alias]
        except Exception as error:
            raise CommandError(f"no backend {alias}: {error}") from error
        if not isinstance(backend, DelayqBackend):
            raise CommandError(f"TASKS[{alias!r}] is no DelayqBackend")
        if not (names := names or sorted(backend.queues)):
            raise CommandError(f"TASKS[{alias!r}] has no QUEUES: give --queue")
        if unknown := [name for name in names if backend.queues and name not in backend.queues]:
            known = ", ".join(sorted(backend.queues))
            raise CommandError(f"TASKS[{alias!r}] has no queue {unknown[0]}: it has {known}")
        try:
            queues: dict[Any, int] = {backend.queue(name): 1 for name in names}
            Worker(queues, concurrency=options["concurrency"]).run(burst=options["burst"])
        except DelayqError as error:
            raise CommandError(str(error)) from error
