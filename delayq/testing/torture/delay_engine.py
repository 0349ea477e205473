"""The delay queue under torture: everything that users do with one."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar
from zlib import crc32

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.requests import Replace
from delayq.broker.transport.executor import Executor
from delayq.options import QueueOptions
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.sending.message_options import NewMessage
from delayq.queue.sending.sent import STATUS_OF
from delayq.queue.server_check import removal
from delayq.testing.torture.callback_engine import CallbackEngine, numbers
from delayq.testing.torture.disturbing.planted import TYPES, plant
from delayq.testing.torture.engine_interface import QueueSnapshot, WrongCountError
from delayq.testing.torture.final_scan import scan
from delayq.testing.torture.history import Recorder, ScanRecord, ToldRecord, now
from delayq.testing.torture.process_task import ProcessTask
from delayq.testing.torture.recorded_calls import RecordedCalls
from delayq.testing.torture.workload import (
    BREAKERS,
    LIMIT_RECORDS,
    LIMITS,
    Action,
    payload_of,
    profile_name,
    profile_of,
)
from delayq.values.states import State
from delayq.values.times import from_millis
from delayq.worker.drivers.work_buffer import Callback

APART, SENDERS = 4, 8
"""Every so manieth batch is sent one by one, by so many threads."""
_LETTERS = {status: letter for letter, status in STATUS_OF.items()}


class DelayEngine(CallbackEngine):
    """See `Engine`."""

    supported_actions = frozenset({"send", "replace", "follow", "cancel", "stop", "reschedule"})
    limits = LIMIT_RECORDS
    _replacing: ClassVar[dict[str, Replace]] = {"replace": True, "follow": "after"}

    def create(self, task: ProcessTask, options: QueueOptions, *, is_async: bool = False) -> Any:
        kind: Any = AsyncDelayQueue if is_async else DelayQueue
        queue = kind(task.queue, prefix=task.prefix, **options)
        queue._handlers.around = _with_breakers  # noqa: SLF001 - those of names are otherwise of tasks, not of a callback
        return queue

    def record(self, queue: Any, recorder: Recorder) -> None:
        queue._context.calls = RecordedCalls(queue._context.calls.keys, recorder)  # noqa: SLF001 - it is not exposed

    def perform(self, queue: Any, action: Action, dues: list[int]) -> None:
        if action.what in {"cancel", "stop"}:
            queue.cancel(action.ids[0], running=action.what == "stop")
        elif action.what == "reschedule":
            queue.reschedule(action.ids[0], at=from_millis(dues[0]))
        else:
            rows = zip(action.ids, dues, strict=True)
            messages = [_options(id, due, payload_of(id, action.life)) for id, due in rows]
            if action.what == "send" and crc32(action.ids[0].encode()) % APART == 0:
                _send_apart(queue, messages)
            else:
                replacing = self._replacing.get(action.what, False)
                queue.send_many([NewMessage(**one) for one in messages], replace=replacing)

    def inspect(self, queue: Any, chance: random.Random) -> None:
        super().inspect(queue, chance)
        stats = queue.stats()
        if min(*numbers(stats.counts).values(), *stats.totals.values()) < 0:
            raise WrongCountError(f"negative count: {stats}")
        state = chance.choice(list(State))
        page = queue.list(state, limit=20)
        if any(message.state is not state for message in page.messages):
            raise WrongCountError(f"asked for messages in state {state}: {page}")
        for message in page.messages[:3]:
            queue.get(message.id)

    def poll(self, queue: Any) -> QueueSnapshot:
        stats = queue.stats()
        return QueueSnapshot(counts=numbers(stats.counts), living=stats.counts.living, totals=stats.totals)

    def scan(self, task: ProcessTask, direct: Executor, *, own: bool) -> ScanRecord:
        return scan(direct, Keys.of(task.prefix, task.queue), own=own)

    def plant(self, task: ProcessTask, direct: Executor) -> None:
        plant(direct, Keys.of(task.prefix, task.queue), TYPES)

    def pause(self, task: ProcessTask, direct: Executor, seconds: float, name: str) -> None:
        calls, until = Calls(Keys.of(task.prefix, task.queue)), f"+{seconds * 1000:.0f}"
        if name:
            direct.run([calls.limit(name, paused=until if seconds else "-", reason="torture")])
        else:
            direct.run([calls.pause(until, "torture") if seconds else calls.resume()])

    def trip(self, task: ProcessTask, direct: Executor, recorder: Recorder, seconds: float) -> None:
        calls = RecordedCalls(Keys.of(task.prefix, task.queue), recorder)
        direct.run([calls.hold(None, 0, pause=round(seconds * 1000))])

    def prepare(self, queue: Any) -> None:
        for name, limit in LIMITS.items():
            queue.limits.set(name, **limit)

    def repair(self, queue: Any) -> None:
        queue.repair(deep=True)

    def remove(self, task: ProcessTask, direct: Executor) -> None:
        direct.run(removal(Keys.of(task.prefix, task.queue), task.prefix, task.queue))


def _with_breakers(callback: Callback) -> Callback:
    return callback._replace(breakers=BREAKERS)


def _send_apart(queue: Any, messages: list[dict[str, Any]]) -> None:
    """Send each message in a thread of its own, so that they share calls; record what each sender is told."""
    recorder = queue._context.calls.recorder  # noqa: SLF001 - see `record`

    def send(options: dict[str, Any]) -> None:
        sent = queue.send_schedule_msg(**options)
        recorder.write(ToldRecord(at=now(), id=options["id"], told=sent.id, status=_LETTERS[sent.status]))

    with ThreadPoolExecutor(SENDERS) as threads:
        told = [threads.submit(send, one) for one in messages]
    for one in told:  # all have ended: an error leaves no call of theirs under way
        one.result()


def _options(id: str, due: int, payload: bytes) -> dict[str, Any]:
    """Return the arguments of a send."""
    profile = profile_of(payload)
    return {
        "payload": payload,
        "at": from_millis(due),
        "id": id,
        "name": profile_name(payload),
        "retries": profile.retries,
        "expires": profile.expires,
        "missed": "dead" if profile.expires is None else "drop",
        "priority": profile.priority,
        "retention": profile.retention,
    }
