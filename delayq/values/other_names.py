"""What other task queues call it: errors for their names say ours.

The names are those of Celery, Dramatiq, Huey, RQ, arq, TaskIQ, asynq and BullMQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

OPTIONS = {
    "acks_late": "nothing: a message is always settled after its callback",
    "attempts": "retries, without the first attempt",
    "autoscale": "concurrency, which is fixed",
    "broker": "url",
    "broker_url": "url",
    "connection": "redis, or url",
    "countdown": "delay",
    "db": "url, as in redis://localhost:6379/1",
    "default_timeout": "timeout, of a task or a message; max_consume_duration of a queue",
    "defer_by": "delay",
    "defer_until": "at",
    "enqueue_in": "delay",
    "eta": "at",
    "expiration": "expires",
    "host": "url",
    "job_id": "id",
    "job_timeout": "timeout",
    "max_attempts": "retries, without the first attempt",
    "max_concurrency": "concurrency",
    "max_retries": "retries, and default_retries of a queue",
    "max_retry": "retries, and default_retries of a queue",
    "message_id": "id",
    "msg_id": "id",
    "pool": "concurrency, of threads; an AsyncDelayQueue runs coroutines",
    "prefetch_count": "prefetch",
    "port": "url",
    "prefetch_multiplier": "prefetch",
    "process_at": "at",
    "process_in": "delay",
    "redis_url": "url",
    "result_ttl": "retention",
    "result_expires": "retention",
    "retry": "retries",
    "retry_backoff": "backoff",
    "retry_delay": "nack_delay",
    "run_at": "at",
    "scheduled_at": "at",
    "serializer": "codec",
    "task_id": "id",
    "time_limit": "timeout, and max_consume_duration of a queue",
    "soft_time_limit": "timeout, and max_consume_duration of a queue",
    "task_acks_late": "nothing: a message is always settled after its callback",
    "ttl": "expires",
    "visibility_timeout": "lease",
    "worker_concurrency": "concurrency",
}
METHODS = {
    "actor": "task",
    "add": "send",
    "add_job": "send",
    "add_task": "task",
    "ack": "lease(), whose messages have ack",
    "apply_async": "options(...).send(...) of a task",
    "clear": "purge",
    "consume": "start_consume",
    "count": "counts",
    "delay": "send",
    "delete": "cancel",
    "dequeue": "lease() or a callback",
    "empty": "purge",
    "enqueue": "send",
    "enqueue_at": "send_schedule_msg",
    "enqueue_in": "send_delay_msg",
    "flush": "purge",
    "get_job": "get",
    "get_message": "lease() or a callback",
    "jobs": "list",
    "join": "run with burst=True",
    "kiq": "send",
    "peek": "list",
    "pop": "lease() or a callback",
    "publish": "send",
    "push": "send",
    "put": "send",
    "qsize": "counts",
    "receive": "lease() or a callback",
    "revoke": "cancel",
    "s": "message",
    "schedule": "send with at, or schedules",
    "send_with_options": "options(...).send(...) of a task",
    "si": "message",
    "size": "counts",
    "start": "start_consume",
    "work": "run",
}
DEAD_METHODS = {
    "clear": "purge",
    "delete": "purge",
    "remove": "purge",
    "replay": "redrive",
    "requeue": "redrive",
    "retry": "redrive",
}
LIMIT_METHODS = {"add": "set", "create": "set", "delete": "remove", "update": "set"}
SCHEDULE_METHODS = {
    "cancel": "remove",
    "create": "add",
    "delete": "remove",
    "run": "run_now",
    "trigger": "run_now",
    "unschedule": "remove",
    "update": "set",
}
MESSAGE_METHODS = {
    "args": "payload",
    "body": "payload",
    "data": "payload",
    "delivery_count": "attempt",
    "fail": "reject",
    "job_id": "id",
    "kwargs": "payload",
    "message_id": "id",
    "requeue": "release, or nack",
    "retries": "retries_left, and attempt",
    "retry": "nack, or raise Retry",
    "task_id": "id",
    "touch": "extend",
    "value": "payload",
}
COMMANDS = {
    "add": "send",
    "apply-async": "send",
    "beat": "schedules, which workers fire",
    "call": "send",
    "consume": "worker",
    "consumer": "worker",
    "delete": "cancel",
    "empty": "purge",
    "cron": "schedules",
    "dashboard": "web",
    "enqueue": "send",
    "flower": "web",
    "info": "stats",
    "inspect": "stats, list, show or why",
    "jobs": "list",
    "ls": "list, or queues",
    "monitor": "top",
    "purge-all": "purge",
    "publish": "send",
    "put": "send",
    "requeue": "dead redrive",
    "retry": "dead redrive",
    "revoke": "cancel",
    "run": "worker, or run-now",
    "scheduler": "schedules, which workers fire",
    "start": "worker",
    "status": "stats, or health",
    "tasks": "list",
    "ui": "web",
}
GROUP_COMMANDS: dict[str, Mapping[str, str]] = {
    "dead": DEAD_METHODS,
    "limits": LIMIT_METHODS,
    "remind": {"add": "import", "ics": "import", "load": "import", "remove": "forget", "delete": "forget"},
    "runs": {"delete": "forget", "remove": "forget", "show": "list"},
    "schedules": SCHEDULE_METHODS
    | {"run_now": "run", "trigger": "run", "apply": "sync", "import": "sync", "load": "sync"},
}
"""By the name of a group of commands."""


def option_hint(name: str) -> str:
    """Return the end of the text of an error that says what an option of another library is called; '' if none is."""
    return f": here it is {OPTIONS[name]}" if name in OPTIONS else ""


def flag_hint(name: str) -> str:
    """Return the same for an option of the command line, such as `--countdown`."""
    ours = OPTIONS.get(name.lstrip("-").replace("-", "_"), "nothing").partition(",")[0]
    return "" if ours.startswith("nothing") else f": here it is --{ours.replace('_', '-')}"


class Hinting:
    """A class whose missing methods say what they are called here, if another library has them."""

    __slots__ = ()
    _other_names: ClassVar[Mapping[str, str]] = METHODS

    if not TYPE_CHECKING:  # a type checker is to know which methods there are

        def __getattr__(self, name: str) -> object:
            ours = self._other_names.get(name)
            hint = f": here it is {ours}" if ours else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)
