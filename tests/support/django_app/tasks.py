"""Tasks of a Django app, in a module that is found as apps load."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from delayq import Discard, Reject, Snooze
from delayq.django import every, task

seen: list[Any] = []
connections_used: list[Any] = []
failures: Counter[str] = Counter()
begun, release = threading.Event(), threading.Event()


@task
def add(one, two=0):
    """Return a sum."""
    seen.append((one, two))
    return one + two


@task
async def add_async(one, two=0):
    """Return a sum, as a coroutine."""
    return one + two


@task(queue_name="emails", priority=5)
def send_email(to):
    """Be of another queue."""
    seen.append(to)


@task
def fail(text):
    """Fail each time."""
    raise ValueError(text)


@task
def fail_once(name):
    """Fail the first time."""
    failures[name] += 1
    if failures[name] == 1:
        raise KeyError(name)
    return failures[name]


@task
def exit_process():
    """Raise what is no Exception."""
    raise SystemExit(3)


@task
def fail_deep(text):
    """Have a traceback that is larger than what is kept."""
    raise RuntimeError(text * 3000)


@task
def reject():
    """Fail for good."""
    raise Reject("no such customer")


@task
def change_arguments(words):
    """Change what it was given."""
    words.append("more")
    return words


@task
def discard():
    """Be no longer needed."""
    raise Discard("paid")


@task
def snooze_once(name):
    """Ask for another time."""
    failures[name] += 1
    if failures[name] == 1:
        raise Snooze("0s")
    return "woken"


@task
def return_no_json():
    """Return what is no JSON."""
    return datetime.now(UTC)


@task
def return_much():
    """Return more than is kept."""
    return "x" * 100_000


@task(takes_context=True)
def tell_context(context, word):
    """Return what the context tells."""
    result = context.task_result
    seen.append(result)
    return [word, context.attempt, result.id, str(result.status)]


@task
def wait():
    """Run until the test lets it end."""
    begun.set()
    release.wait(30)


@task
def count_users():
    """Use the database."""
    from django.contrib.auth.models import User
    from django.db import connections

    connections_used.append(connections["default"])
    return User.objects.count()


@every("1h", args=["hourly"], misfire="skip")
@task
def remember(word):
    """Run every hour."""
    seen.append(word)


class Holder:
    """Holds what is no task."""

    @staticmethod
    def method():
        """Be no function of the module."""


def plain():
    """Be no task."""


@task
def note(number):
    """Write a row for each time that it runs."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effects (n) VALUES (%s)", [number])
