"""Schedules of Django's tasks, declared where the task is: `@cron("0 9 * * MON-FRI")` above `@task`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from delayq.django.backend import DelayqBackend
from delayq.django.tasks_api import DjangoTask, normalize_json
from delayq.errors import ConfigurationError, PayloadError, short_repr
from delayq.schedules.definition import ScheduleOptions
from delayq.values.times import Duration

Decorator = Callable[[Any], Any]


def cron(
    expression: str,
    *,
    tz: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[ScheduleOptions],
) -> Decorator:
    """Run a task by a cron expression, as a decorator above `@task`; see `DelayQueue.cron`.

    The task gets `args` and `kwargs`, which are JSON. Its schedule has the path of the task as its name, and is stored
    when a worker starts. Raises `ConfigurationError` for what is no task of a `DelayqBackend`.
    """
    return _declare("cron", expression, (args, kwargs), {**options, "tz": tz})


def every(
    interval: Duration,
    *,
    tz: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[ScheduleOptions],
) -> Decorator:
    """Run a task at an interval such as `"15m"`; see `cron` here, and `DelayQueue.every`."""
    return _declare("every", interval, (args, kwargs), {**options, "tz": tz})


def rrule(
    rule: str,
    *,
    tz: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[ScheduleOptions],
) -> Decorator:
    """Run a task by a recurrence rule of iCalendar; see `cron` here, and `DelayQueue.rrule`."""
    return _declare("rrule", rule, (args, kwargs), {**options, "tz": tz})


def _declare(kind: str, rule: Any, arguments: tuple[Any, Any], options: Mapping[str, Any]) -> Decorator:
    if "payload" in options:
        raise ConfigurationError("the payload of a task is what it is called with: give args and kwargs")

    def declare(task: Any) -> Any:
        if not isinstance(task, DjangoTask):
            raise ConfigurationError(f"@{kind} stands above @task: {short_repr(task)} is no task")
        backend = task.get_backend()
        if not isinstance(backend, DelayqBackend):
            raise ConfigurationError(f"task {task.module_path} has another backend: schedules need a DelayqBackend")
        try:
            payload = normalize_json({"args": list(arguments[0]), "kwargs": dict(arguments[1] or {})})
        except (TypeError, ValueError) as error:
            raise PayloadError(f"the arguments of {task.module_path} are no JSON: {error}") from error
        queue = backend.queue(task.queue_name)
        declared = getattr(queue, kind)(rule, name=task.module_path, payload=payload, **options)
        declared(backend.runner(task.queue_name))
        return task

    return declare
