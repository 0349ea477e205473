"""The backend of Django's tasks: each queue of `QUEUES` is a delay queue of the same name."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

from django.apps import apps
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone

from delayq.broker.message.attributes import check_message_name
from delayq.broker.message.ids import new_id
from delayq.django.records import in_zone, read_result, read_waiting
from delayq.django.running import TaskRunner, now_millis
from delayq.django.tasks_api import (
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from delayq.errors import ConfigurationError, DelayqError
from delayq.options import QueueOptions
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.sending.due_times import due_text
from delayq.values.checks import check_options

RETENTION = "1d"
"""How long results are kept, unless the OPTIONS say otherwise."""
WHEN = ("on_commit", "now", "outbox")
_queues: dict[tuple[str, str, str], tuple[DelayQueue[Any], TaskRunner]] = {}
"""Those of all threads of the process, each of which has backend objects of its own."""
_making = threading.RLock()


class DelayqBackend(BaseTaskBackend):
    """Sends tasks to Redis, where `manage.py delayq_worker` finds them: each runs at least once, and never early.

    OPTIONS take every option of a queue but `codec`, and three more. `enqueue` says when a task is sent: `"on_commit"`,
    by default, when the transaction commits, and never after a rollback; `"now"`; or `"outbox"`, which writes a row in
    the transaction, for `manage.py delayq_outbox` to send. `database` is the alias of the database whose transaction
    counts. Results are kept for `retention`, a day by default. A task that raises runs again
    up to `default_retries` times, and is FAILED after the last.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Raise `InvalidTaskBackend` for OPTIONS that cannot be."""
        super().__init__(alias, params)
        options = dict(self.options)
        self._when = options.pop("enqueue", "on_commit")
        self.database: str = options.pop("database", DEFAULT_DB_ALIAS)
        """The alias of the database whose transaction counts."""
        if self._when not in WHEN:
            known = ", ".join(map(repr, WHEN))
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: enqueue must be one of {known}, not {self._when!r:.60}")
        if "codec" in options:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: tasks are stored as JSON: leave out the option codec")
        try:
            check_options(options, QueueOptions.__annotations__)
        except ConfigurationError as error:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: {error}") from error
        self._queue_options: Any = {"retention": RETENTION} | options
        self._cached = f"{sorted(self._queue_options.items(), key=lambda item: item[0])}"

    def queue(self, name: str) -> DelayQueue[Any]:
        """Return the delay queue of a queue of this backend, with the tasks as its callback.

        One object serves all threads of the process. Raises `ConfigurationError` for wrong OPTIONS.
        """
        return self._made(name)[0]

    def runner(self, name: str) -> TaskRunner:
        """Return what runs the tasks of a queue: the callback of its messages and of its declared schedules."""
        return self._made(name)[1]

    @property
    def place(self) -> dict[str, Any]:
        """The options that say where the queues are."""
        return {name: value for name, value in self._queue_options.items() if name in ("url", "redis", "prefix")}

    def _made(self, name: str) -> tuple[DelayQueue[Any], TaskRunner]:
        key = (self.alias, name, self._cached)
        with _making:
            if (found := _queues.get(key)) is None:
                queue = DelayQueue[Any](name, **self._queue_options)
                found = _queues[key] = queue, TaskRunner(self, queue)
                queue.callback(found[1])
        return found

    def validate_task(self, task: Any) -> None:
        """Raise `InvalidTask` for a task that cannot be found again by its path, or with values out of range."""
        super().validate_task(task)
        _check_path(task.func.__module__, task.func.__qualname__)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Send a task, by default when the transaction commits; returns its result object at once.

        Everything is checked and encoded now: raises `InvalidTask`, `TypeError` for arguments that are no JSON, and
        `PayloadError`. A send raises `NoReplyError` or `QueueFullError`: after a commit, from there. With an outbox no
        send is made, and `OutboxError` tells of missing tables.
        """
        self.validate_task(task)
        queue, id, now = self.queue(task.queue_name), new_id(), now_millis()
        result = TaskResult(
            task=task,
            id=f"{task.queue_name}@{id}",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        due: str | int = 0
        payload = {"args": result.args, "kwargs": result.kwargs, "enqueued": now}
        if (at := task.run_after) is not None:
            at = at if timezone.is_aware(at) else timezone.make_aware(at)
            due, payload["run_after"] = due_text(None, at), int(at.timestamp() * 1000)
        options: dict[str, Any] = {"name": task.module_path}
        if task.priority:
            options["priority"] = task.priority
        outgoing = queue.producer.outgoing(payload, due, None, id, None, options=options)
        if self._when == "outbox":
            self._write(queue, outgoing, result, now)
            return result
        send = partial(self._send, queue, outgoing, result, now)
        connection = connections[self.database]
        # Without a connection there is no transaction, and to ask for one would make the connection.
        if self._when == "now" or not (connection.in_atomic_block or connection.connection is not None):
            send()
        else:
            connection.on_commit(send)
        return result

    def _write(self, queue: DelayQueue[Any], outgoing: Any, result: Any, now: int) -> None:
        """Write a row in the transaction; the signal is sent when it commits."""
        from delayq.django import outbox_rows  # not every site has an outbox
        from delayq.outbox.rows import row_of, stored_name

        outbox_rows.write(self.database, row_of(stored_name(queue), outgoing))
        object.__setattr__(result, "enqueued_at", in_zone(now))
        tell = partial(task_enqueued.send_robust, type(self), task_result=result)
        connection = connections[self.database]
        if connection.in_atomic_block:
            connection.on_commit(tell)
        else:
            tell()

    def _send(self, queue: DelayQueue[Any], outgoing: Any, result: Any, now: int) -> None:
        queue.sends.send(outgoing, replace=False)
        object.__setattr__(result, "enqueued_at", in_zone(now))
        task_enqueued.send_robust(type(self), task_result=result)

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task by its id, in whichever state it is.

        A task in the outbox is READY. Raises `TaskResultDoesNotExist` before its transaction commits, and when its
        `retention` is over; a `LookupError` for a task that this process does not have.
        """
        name, _, id = result_id.partition("@") if isinstance(result_id, str) else ("", "", "")
        if not id or (self.queues and name not in self.queues):
            raise TaskResultDoesNotExist(result_id)
        using = {"backend": self.alias, "queue_name": name}
        try:
            queue = self.queue(name)
            found = queue.get(id)
            if found is None and self._when == "outbox":
                from delayq.django.outbox_rows import find
                from delayq.outbox.rows import stored_name

                if (row := find(self.database, stored_name(queue), id)) is not None:
                    return read_waiting(row, queue.context.decode, result_id, using)
                found = queue.get(id)  # a relay may have sent it meanwhile
        except ConfigurationError as error:
            raise TaskResultDoesNotExist(result_id) from error
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        return read_result(found, result_id, using)

    def check(self, **_: Any) -> Iterable[checks.CheckMessage]:
        """Return what is wrong with the settings: wrong OPTIONS, names that no queue may have, a missing app."""
        where = f"TASKS[{self.alias!r}]"
        for name in sorted(self.queues):
            try:
                self.queue(name)
            except DelayqError as error:
                yield checks.Error(f"{where}: {error}", id="delayq.E001")
                return
        if not apps.is_installed("delayq.django"):
            hint = "Add 'delayq.django' to INSTALLED_APPS: it finds tasks.py, and has the worker and the dashboard."
            yield checks.Warning(f"{where} uses delayq, but its app is not installed", hint, id="delayq.W001")
            if self._when == "outbox":
                hint = "Add 'delayq.django' to INSTALLED_APPS, and migrate: it has the tables."
                yield checks.Error(f"{where}: enqueue='outbox' needs the app delayq.django", hint, id="delayq.E003")
        if self.database not in connections.settings:
            yield checks.Error(f"{where}: no database is named {self.database!r}", id="delayq.E002")


@lru_cache
def _check_path(module: str, name: str) -> None:
    if "." in name:
        raise InvalidTask("Task function must be defined at a module level.")
    try:
        check_message_name(f"{module}.{name}")
    except ConfigurationError as error:
        raise InvalidTask(f"The path of a task becomes a name of messages: {error}") from error
