"""What is stored of a Django task in its message: its arguments, its attempts so far, and in the end its result.

The payload has the arguments and the time of the send. Attempts are the progress of the message, which Redis keeps
through retries and in the dead letter. A task that has succeeded leaves all of it as its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from traceback import format_exception
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from delayq.broker.message.attributes import Attributes
from delayq.django.tasks_api import DjangoTask, TaskError, TaskResult, TaskResultStatus
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.schedules.definition import HEADER
from delayq.values.codec import JsonCodec
from delayq.values.states import State
from delayq.values.times import from_millis

MAX_BYTES = 4096
"""Bytes of an encoded progress report."""
SHORTEST = 200
"""Characters of a traceback that are left at least, before the errors of earlier attempts are dropped."""
MAX_WORKERS = 20
"""Attempts whose workers are kept."""
_FAILED = (State.DEAD, State.GARBAGE)
_encode = JsonCodec().encode


class NoTaskError(LookupError):
    """The name of a message is the path of no task in this process."""


def find_task(path: str) -> Any:
    """Return the task at a path such as `shop.tasks.remind`; raise `NoTaskError` if there is none."""
    try:
        found = import_string(path)
    except (ImportError, ValueError) as error:
        raise NoTaskError(f"{path} cannot be imported: {error}") from error
    if not isinstance(found, DjangoTask):
        raise NoTaskError(f"{path} is no task: decorate it with @task")
    return found


@dataclass(slots=True)
class Attempts:
    """What is known of the attempts of a task; times in milliseconds since 1970."""

    started: int | None = None
    last: int | None = None
    running: bool = False
    """Whether the last attempt has started, and has not failed as far as it could tell."""
    workers: list[str] = field(default_factory=list)
    errors: list[list[str]] = field(default_factory=list)
    """Of each: the path of its class, and its traceback."""

    @classmethod
    def read(cls, stored: Any) -> Attempts:
        """Return what a message has stored; nothing for what another program has written."""
        try:
            return cls(**stored)
        except TypeError:
            return cls()

    def begin(self, now: int, worker: str) -> None:
        """Note that an attempt starts."""
        self.started = now if self.started is None else self.started
        self.last, self.running = now, True
        self.workers = [*self.workers, worker][-MAX_WORKERS:]

    def fail(self, error: BaseException) -> None:
        """Note that the attempt has failed."""
        kind = type(error)
        self.errors = [*self.errors, [f"{kind.__module__}.{kind.__qualname__}", "".join(format_exception(error))]]
        self.running = False

    def stored(self) -> dict[str, Any]:
        """Return what fits into a report: first tracebacks get shorter, from their beginning, then errors are fewer."""
        errors = self.errors
        while True:
            kept: dict[str, Any] = {"started": self.started, "last": self.last, "running": self.running}
            kept |= {"workers": self.workers, "errors": errors}
            if (beyond := len(_encode(kept)) - MAX_BYTES) <= 0 or not errors:
                return kept
            longest = max(range(len(errors)), key=lambda at: len(errors[at][1]))
            path, text = errors[longest]
            if len(text) > SHORTEST:
                left = max(SHORTEST, len(text) - max(beyond, 100))
                errors = [*errors[:longest], [path, "…" + text[1 - left :]], *errors[longest + 1 :]]
            else:
                errors = errors[1:]


def in_zone(millis: int | None) -> datetime | None:
    """Return a time as Django has it: aware with `USE_TZ`, else naive in the time zone of the settings."""
    if millis is None:
        return None
    at = from_millis(millis)
    return at if settings.USE_TZ else timezone.make_naive(at)


def result_of(task: Any, id: str, stored: Any, attempts: Attempts, status: Any, *, finished: int | None = None) -> Any:
    """Return the result of a task whose message has this payload."""
    stored = stored if isinstance(stored, dict) else {}
    return TaskResult(
        task=task.using(run_after=in_zone(stored.get("run_after"))),
        id=id,
        status=status,
        enqueued_at=in_zone(stored.get("enqueued")),
        started_at=in_zone(attempts.started),
        finished_at=in_zone(finished),
        last_attempted_at=in_zone(attempts.last),
        args=stored.get("args", []),
        kwargs=stored.get("kwargs", {}),
        backend=task.backend,
        errors=[TaskError(exception_class_path=path, traceback=text) for path, text in attempts.errors],
        worker_ids=[*attempts.workers],
    )


def read_result(info: MessageInfo, id: str, using: Any) -> Any:
    """Return the result of the task of a message, by the state that it is in; `using` are changes of the task."""
    done = info.result if info.state is State.COMPLETED and isinstance(info.result, dict) else {}
    stored = done or info.payload
    attempts = Attempts.read(done.get("attempts", {}) if info.state is State.COMPLETED else info.progress or {})
    ended = info.completed or info.died
    finished = None if ended is None else int(ended.timestamp() * 1000)
    status = TaskResultStatus.READY
    if info.state in _FAILED or (info.state is State.COMPLETED and not done):
        status = TaskResultStatus.FAILED
        if attempts.running or not attempts.errors:  # lost with its worker, stopped by a time limit, or killed
            why = ": ".join(text for text in (info.reason, info.error) if text)
            attempts.errors.append(["delayq.errors.MessageFailedError", why or "no result was kept"])
    elif info.state is State.COMPLETED:
        status = TaskResultStatus.SUCCESSFUL
    elif info.state is State.ACTIVE and attempts.running:
        status = TaskResultStatus.RUNNING
    task = find_task(info.name or info.headers.get(HEADER, "")).using(priority=info.priority, **using)
    result = result_of(task, id, stored, attempts, status, finished=finished)
    if status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", done.get("returned"))
    return result


def read_waiting(row: Any, decode: Callable[[bytes], Any], id: str, using: Any) -> Any:
    """Return the result of a task that is a row of the outbox; `using` are changes of the task."""
    attributes = Attributes.of(bytes(row.attributes))
    task = find_task(attributes.name).using(priority=attributes.priority, **using)
    return result_of(task, id, decode(bytes(row.payload)), Attempts(), TaskResultStatus.READY)
