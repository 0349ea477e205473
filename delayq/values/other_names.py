"""What other task queues call it: errors for their names say ours.

The names are those of Celery, Dramatiq, Huey, RQ, arq, TaskIQ, asynq and BullMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

OPTIONS = {
    "acks_late": "nothing: a message is always settled after its callback",
    "attempts": "retries, without the first attempt",
    "broker": "url",
    "broker_url": "url",
    "countdown": "delay",
    "defer_by": "delay",
    "defer_until": "at",
    "enqueue_in": "delay",
    "eta": "at",
    "expiration": "expires",
    "job_id": "id",
    "job_timeout": "timeout",
    "max_attempts": "retries, without the first attempt",
    "max_concurrency": "concurrency",
    "max_retries": "retries",
    "max_retry": "retries",
    "message_id": "id",
    "msg_id": "id",
    "prefetch_count": "prefetch",
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
    "task_id": "id",
    "time_limit": "timeout",
    "soft_time_limit": "timeout",
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
    "apply_async": "options(...).send(...) of a task",
    "consume": "start_consume",
    "delay": "send",
    "enqueue": "send",
    "enqueue_at": "send_schedule_msg",
    "enqueue_in": "send_delay_msg",
    "kiq": "send",
    "publish": "send",
    "put": "send",
    "revoke": "cancel",
    "s": "message",
    "schedule": "send with at, or schedules",
    "send_with_options": "options(...).send(...) of a task",
    "si": "message",
    "start": "start_consume",
}
COMMANDS = {
    "add": "send",
    "beat": "schedules, which workers fire",
    "consume": "worker",
    "consumer": "worker",
    "cron": "schedules",
    "dashboard": "web",
    "enqueue": "send",
    "flower": "web",
    "inspect": "stats, list, show or why",
    "ls": "list, or queues",
    "monitor": "top",
    "publish": "send",
    "put": "send",
    "retry": "dead redrive",
    "revoke": "cancel",
    "run": "worker, or run-now",
    "scheduler": "schedules, which workers fire",
    "start": "worker",
    "status": "stats, or health",
    "ui": "web",
}


def option_hint(name: str) -> str:
    """Return the end of the text of an error that says what an option of another library is called; '' if none is."""
    return f": here it is {OPTIONS[name]}" if name in OPTIONS else ""


def flag_hint(name: str) -> str:
    """Return the same for an option of the command line, such as `--countdown`."""
    ours = OPTIONS.get(name.lstrip("-").replace("-", "_"), "nothing").partition(",")[0]
    return "" if ours.startswith("nothing") else f": here it is --{ours.replace('_', '-')}"


class Hinting:
    """A class whose missing methods say what they are called here, if another library has them."""

    if not TYPE_CHECKING:  # a type checker is to know which methods there are

        def __getattr__(self, name: str) -> object:
            hint = f": here it is {METHODS[name]}" if name in METHODS else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)
