"""The tasks of Django: of Django itself from 6.0 on, else of the backport `django-tasks`, which has the same names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django import VERSION
from django.core.exceptions import ImproperlyConfigured

_PACKAGE = "django.tasks" if VERSION >= (6, 0) else "django_tasks"


def _of(module: str, *names: str) -> Any:
    """Return the first of these names that a module of the package has."""
    try:
        found = import_module(f"{_PACKAGE}{module}")
    except ModuleNotFoundError as error:
        text = "Django has tasks from 6.0 on: before, install the backport, pip install django-tasks"
        raise ImproperlyConfigured(text) from error
    return next(getattr(found, name) for name in names if hasattr(found, name))


BaseTaskBackend: Any = _of(".backends.base", "BaseTaskBackend")
DjangoTask: Any = _of(".base", "Task")
TaskContext: Any = _of(".base", "TaskContext")
TaskError: Any = _of(".base", "TaskError")
TaskResult: Any = _of(".base", "TaskResult")
TaskResultStatus: Any = _of(".base", "TaskResultStatus")
InvalidTask: type[Exception] = _of(".exceptions", "InvalidTask", "InvalidTaskError")
InvalidTaskBackend: type[Exception] = _of(".exceptions", "InvalidTaskBackend", "InvalidTaskBackendError")
TaskResultDoesNotExist: type[Exception] = _of(".exceptions", "TaskResultDoesNotExist")
task_backends: Any = _of("", "task_backends")
task_enqueued: Any = _of(".signals", "task_enqueued")
task_started: Any = _of(".signals", "task_started")
task_finished: Any = _of(".signals", "task_finished")
normalize_json: Any = _of(".base", "normalize_json")
task: Any = _of(".base", "task")
