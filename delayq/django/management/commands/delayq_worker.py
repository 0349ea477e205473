"""`manage.py delayq_worker`: runs the tasks of a backend."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from delayq.django.management.chosen_queues import add_queue_arguments, chosen_queues
from delayq.errors import DelayqError
from delayq.queue.pooling.worker import Worker


class Command(BaseCommand):
    """Runs tasks in threads until it is stopped."""

    help = "Run the tasks of a DelayqBackend until SIGTERM or Ctrl-C, which lets running tasks finish."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take which queues to serve, and how."""
        add_queue_arguments(parser)
        parser.add_argument("--concurrency", type=int, help="Tasks that run at a time (default: that of the queues).")
        parser.add_argument("--burst", action="store_true", help="Return when nothing is due any more.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run; raise `CommandError`, one line, for what cannot be."""
        backend, names = chosen_queues(options)
        try:
            queues: dict[Any, int] = {backend.queue(name): 1 for name in names}
            Worker(queues, concurrency=options["concurrency"]).run(burst=options["burst"])
        except DelayqError as error:
            raise CommandError(str(error)) from error
