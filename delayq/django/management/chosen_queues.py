"""The queues that a management command is about."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from delayq.django.backend import DelayqBackend
from delayq.django.tasks_api import task_backends


def add_queue_arguments(parser: ArgumentParser) -> None:
    """Take the backend and its queues."""
    parser.add_argument("--backend", default="default", help="The backend in TASKS (default: %(default)s).")
    parser.add_argument("--queue", action="append", help="A queue to serve; repeat it for several (default: all).")


def chosen_queues(options: Mapping[str, Any]) -> tuple[DelayqBackend, list[str]]:
    """Return the backend and the names of its queues; raise `CommandError`, one line, for what is none."""
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
    return backend, list(dict.fromkeys(names))
