"""A Django project in the process of the tests: SQLite in a file, and the tasks of `tests.support.django_app`."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

try:
    import django

    MISSING = ""
    if django.VERSION < (6, 0) and importlib.util.find_spec("django_tasks") is None:
        MISSING = f"Django {django.__version__} has no tasks, and the backport django-tasks is not installed"
except ModuleNotFoundError:
    MISSING = "Django is not installed"

APP = "tests.support.django_app"
FOLDER = tempfile.TemporaryDirectory(prefix="delayq-django-")


def backend(url: str, /, **options: Any) -> dict[str, Any]:
    """Return TASKS with one backend."""
    given = {"url": url, "default_retries": 0, "nack_delay": "50ms", "tick": "50ms", **options}
    return {
        "default": {"BACKEND": "delayq.django.DelayqBackend", "QUEUES": ["default", "emails"], "OPTIONS": given},
    }


def _configure() -> None:
    from django.conf import settings

    if settings.configured:
        return
    settings.configure(
        SECRET_KEY="for tests only",
        ALLOWED_HOSTS=["testserver"],
        USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(FOLDER.name, "db.sqlite3"))}},
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "delayq.django",
            APP,
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        ROOT_URLCONF="tests.support.django_app.urls",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        TASKS=backend("redis://127.0.0.1:1"),
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


@pytest.fixture(scope="session")
def project() -> None:
    """Set Django up, once in a process."""
    if MISSING:
        pytest.skip(MISSING)
    _configure()


@pytest.fixture
def configure(project, redis_url) -> Iterator[Any]:
    """`configure(**options)` sets TASKS with these OPTIONS, on the Redis of the test."""
    from django.test.utils import override_settings

    made = []

    def use(**options: Any) -> Any:
        params = {name: options.pop(name) for name in ("QUEUES", "BACKEND") if name in options}
        tasks = backend(redis_url, **options)
        tasks["default"] |= params
        made.append(override_settings(TASKS=tasks))
        made[-1].enable()
        from delayq.django.tasks_api import task_backends

        return task_backends["default"]

    yield use
    from django.db import connections

    from delayq.django import backend as module

    for one in reversed(made):
        one.disable()
    connections.close_all()
    for queue, _ in module._queues.values():
        queue.close()
    module._queues.clear()


@pytest.fixture
def tasks(configure) -> Any:
    """The tasks of the app, with a backend by default."""
    configure()
    from tests.support.django_app import tasks

    for kept in (tasks.seen, tasks.connections_used, tasks.failures):
        kept.clear()
    tasks.begun.clear()
    tasks.release.clear()
    return tasks


@pytest.fixture
def work(project) -> Any:
    """`work()` runs `manage.py delayq_worker --burst`."""
    from django.core.management import call_command

    return lambda **options: call_command("delayq_worker", burst=True, **options)


@pytest.fixture
def signals(project) -> Iterator[list[tuple[str, str, str]]]:
    """The signals that were sent: name, status and sender."""
    from delayq.django import tasks_api

    told: list[tuple[str, str, str]] = []
    receivers = {}
    for name in ("task_enqueued", "task_started", "task_finished"):

        def receive(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
            told.append((name, str(task_result.status), sender.__name__))

        receivers[name] = receive
        getattr(tasks_api, name).connect(receive)
    yield told
    for name, receive in receivers.items():
        getattr(tasks_api, name).disconnect(receive)
