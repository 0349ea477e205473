"""`manage.py delayq_outbox`: sends the tasks that transactions have committed."""

from __future__ import annotations

from argparse import ArgumentParser
from contextlib import nullcontext
from threading import current_thread, main_thread
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error, connections

from delayq.django.management.chosen_queues import add_queue_arguments, chosen_queues
from delayq.django.outbox_relay import DjangoRelay
from delayq.errors import DelayqError
from delayq.queue.consuming.stop_signals import handle_signals
from delayq.values.text import pluralize


class Command(BaseCommand):
    """Relays until it is stopped."""

    help = (
        "Send to Redis the tasks that transactions have committed with enqueue='outbox', in order, each exactly once. "
        "Start several: one of them works, and another goes on within a second if it ends. SIGTERM or Ctrl-C stops it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take which queues to send to."""
        add_queue_arguments(parser)
        parser.add_argument("--burst", action="store_true", help="Exit once everything is sent.")
        parser.add_argument("--retry", action="store_true", help="Try again the rows that Redis has refused.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Relay; raise `CommandError`, one line, for what cannot be."""
        backend, names = chosen_queues(options)
        if backend.database not in connections.settings:
            raise CommandError(f"no database is named {backend.database!r:.60}")
        try:
            relay = DjangoRelay(backend.database, *(backend.queue(name) for name in names))
            relay.open()
            if options["retry"]:
                relay.retry()
            is_main = current_thread() is main_thread()
            with handle_signals(lambda *_: relay.stop()) if is_main else nullcontext():
                self.stdout.write(f"relaying to {', '.join(names)}")
                self.stdout.flush()
                moved = relay.run(burst=options["burst"])
        except DelayqError as error:
            raise CommandError(str(error)) from error
        except Error as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise CommandError(f"the database does not answer: {lines[0]}") from error
        self.stdout.write(f"relayed {pluralize(moved, 'row')}")
