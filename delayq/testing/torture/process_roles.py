"""The processes of a run: `python -m delayq.testing.torture.process_roles ROLE`, with the task in the environment.

- A worker processes messages: in threads or, if its number is even, in asyncio tasks. It drains at SIGTERM and when its
  standard input ends.
- A producer sends its share of the messages and cancels, reschedules or replaces some. It does what the guarantees
  ask of users: a send that raised is repeated under the same ids until it returns.
- An inspector reads from the queue all the time. Whatever the faults, a read may fail only for lack of a reply, and
  no count is ever negative.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any
from zlib import crc32

from delayq.broker.requests import Failure, Replace
from delayq.broker.transport.executor import open_async_executor
from delayq.errors import DelayqError
from delayq.options import read_settings
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.inspecting.counts import Counts
from delayq.queue.sending.message_options import NewMessage
from delayq.queue.sending.producer import STATUS_OF
from delayq.testing.torture.history import EndRecord, Recorder, StartRecord, ToldRecord, now
from delayq.testing.torture.process_task import (
    EXIT_SIGNAL,
    TICK,
    ProcessTask,
    ServerClock,
    on_shutdown,
    read_task,
    record_stalls,
    report_ready,
    tolerate,
)
from delayq.testing.torture.recorded_calls import CallHistory
from delayq.testing.torture.workload import (
    BACKOFF,
    BREAKERS,
    MAX_BACKOFF,
    Action,
    CallbackBehavior,
    actions,
    behavior_of,
    key_of,
    payload_of,
    profile_name,
    profile_of,
)
from delayq.values.backoff import Backoff
from delayq.values.states import State
from delayq.values.times import from_millis
from delayq.worker.delivery.message import AsyncMessage, Message
from delayq.worker.drivers.work_buffer import Callback

CONCURRENCY = 12
HOARD = 20
"""Messages that a worker of one thread holds beside the one that runs."""
ECHO = 0.5
"""Seconds after which a message that was settled is settled again."""
RETRY_PAUSE = 0.05
"""Seconds before an action that raised, or a start that was refused, is repeated."""
INSPECT_EVERY = 0.05
"""Seconds between two inspections."""
REDRIVE_SHARE = 0.01
"""The share of inspections that redrive the dead letter."""
APART, SENDERS = 4, 8
"""Every so manieth batch is sent one by one, by so many threads."""
_REPLACING: dict[str, Replace] = {"replace": True, "follow": "after"}
_LETTERS = {status: letter for letter, status in STATUS_OF.items()}


class WrongCountError(AssertionError):
    """The queue returned a count, page or message that is impossible."""


def open_recorded(task: ProcessTask, history: CallHistory, *, is_async: bool = False, **options: Any) -> Any:
    """Return the queue, for threads or asyncio; its calls are recorded."""
    kind: Any = AsyncDelayQueue if is_async else DelayQueue
    queue = kind(task.queue, **task.options(**options))
    if not task.plain:
        queue.handlers.around = _with_breakers
    for one in getattr(queue, "partitions", (queue,)):
        one.context.observe(history)
    return queue


def _with_breakers(callback: Callback) -> Callback:
    return callback._replace(breakers=BREAKERS)


def attempt(history: CallHistory, do: Callable[..., None], *args: Any) -> bool:
    """Use a queue; return False if that raised what a fault explains."""
    try:
        do(*args)
    except DelayqError as error:
        history.failed(error)
        tolerate(error)
        return False
    return True


# Workers


def work(task: ProcessTask, recorder: Recorder) -> None:
    """Run as a worker."""
    with record_stalls(recorder, task.lease, task.process):
        if task.number % 2:
            _work(task, recorder)
        else:
            asyncio.run(_work_async(task, recorder))


def _work(task: ProcessTask, recorder: Recorder) -> None:
    """Process messages in threads until told to stop."""
    queue = open_recorded(task, CallHistory(recorder), **_consumer_options(task))
    clock = ServerClock(task.direct)

    def callback(message: Message[bytes]) -> bool:
        behavior = _start(recorder, message, task, clock(), threading.get_ident())
        time.sleep(behavior.takes)
        recorder.write(EndRecord(at=now(), id=message.id, token=message.token, outcome=behavior.outcome))
        if behavior.method:
            getattr(message, behavior.method)()
        if behavior.repeats:
            time.sleep(ECHO)
            with _tolerated():
                queue.executor.call(_repeated(queue, message, behavior))
        return behavior.finish()

    queue.callback(callback)
    consuming = None
    while consuming is None:
        try:
            consuming = queue.start_consume()
        except DelayqError as error:  # a start, unlike a running consumer, waits for nothing
            tolerate(error)
            time.sleep(RETRY_PAUSE)
    signal.signal(signal.SIGTERM, lambda *_: consuming.stop())
    signal.signal(EXIT_SIGNAL, lambda *_: sys.exit())  # the consumer goes on until the interpreter ends
    on_shutdown(consuming.stop)
    report_ready()
    consuming.wait()
    queue.close()


async def _work_async(task: ProcessTask, recorder: Recorder) -> None:
    """Process messages in asyncio tasks until told to stop."""
    queue = open_recorded(task, CallHistory(recorder), is_async=True, **_consumer_options(task))
    clock_options = ServerClock.options(task.direct)
    clock = open_async_executor(clock_options, read_settings(clock_options))

    async def callback(message: AsyncMessage[bytes]) -> bool:
        (server,) = await clock.run([ServerClock.command], deadline=0)
        runner = id(asyncio.current_task())
        behavior = _start(recorder, message, task, server if isinstance(server, int) else 0, runner)
        await asyncio.sleep(behavior.takes)
        recorder.write(EndRecord(at=now(), id=message.id, token=message.token, outcome=behavior.outcome))
        if behavior.method:
            await getattr(message, behavior.method)()
        if behavior.repeats:
            await asyncio.sleep(ECHO)
            with _tolerated():
                await queue.executor.call(_repeated(queue, message, behavior))
        return behavior.finish()

    queue.callback(callback)
    loop, left = asyncio.get_running_loop(), asyncio.Event()
    consuming = None
    while consuming is None:
        try:
            consuming = await queue.start_consume()
        except DelayqError as error:
            tolerate(error)
            await asyncio.sleep(RETRY_PAUSE)
    loop.add_signal_handler(signal.SIGTERM, consuming.stop)
    loop.add_signal_handler(EXIT_SIGNAL, left.set)
    on_shutdown(lambda: loop.call_soon_threadsafe(consuming.stop))
    report_ready()
    leaving, waiting = asyncio.create_task(left.wait()), asyncio.create_task(consuming.wait())
    await asyncio.wait([leaving, waiting], return_when=asyncio.FIRST_COMPLETED)
    if left.is_set():
        return  # the end of the event loop cancels the consumer and its callbacks
    await waiting
    await queue.close()
    await clock.close()


def _consumer_options(task: ProcessTask) -> dict[str, Any]:
    nack_delay = Backoff.exponential(BACKOFF, max=MAX_BACKOFF)
    load = {"concurrency": 1, "prefetch": HOARD} if _hoards(task) else {"concurrency": CONCURRENCY}
    return {"tick": TICK, "nack_delay": nack_delay, "grace": 3 * task.lease, **load}


def _hoards(task: ProcessTask) -> bool:
    """Return whether a worker holds messages for longer than a lease before it starts them: one of four."""
    return task.number % 4 == 3  # noqa: PLR2004


def _start(recorder: Recorder, message: Any, task: ProcessTask, server: int, runner: int) -> CallbackBehavior:
    """Record that a callback has started, and return how it behaves."""
    at, facts = now(), {"id": message.id, "token": message.token}
    recorder.write(StartRecord(at=at, server=server, lost=message.lease_lost, runner=runner, **facts))
    behavior = behavior_of(message.payload, message.attempt, at, task.lease)
    return behavior._replace(takes=behavior.takes + 1.3 * task.lease / HOARD) if _hoards(task) else behavior


def _repeated(queue: Any, message: Any, behavior: CallbackBehavior) -> Any:
    """Return the call that settles a message by hand once more, as a program that is late may do."""
    holder = queue.named(message.queue) if hasattr(queue, "partitions") else queue
    calls, receipt = holder.context.calls, message.delivery.receipt
    if behavior.method == "nack":
        return calls.nack([Failure(receipt.id, receipt.token, round(BACKOFF * 1000), "late")])
    return calls.ack([receipt])


@contextmanager
def _tolerated() -> Iterator[None]:
    try:
        yield
    except DelayqError as error:
        tolerate(error)


# Producers


def produce(task: ProcessTask, recorder: Recorder) -> None:
    """Run as a producer: perform action after action, each at its time."""
    clock, stopped, history = ServerClock(task.direct), threading.Event(), CallHistory(recorder)
    todo = sorted(actions(task), key=lambda one: one.at)
    perform = partial(_perform, plain=task.plain)
    todo = [one for one in todo if one.what != "follow"] if task.plain else todo
    with open_recorded(task, history) as queue:
        on_shutdown(stopped.set)
        report_ready()
        began = time.monotonic()
        for action in todo:
            stopped.wait(max(0.0, began + action.at - time.monotonic()))
            if stopped.is_set():
                return
            server = clock.estimate()
            dues = [server + round(ahead * 1000) for ahead in action.ahead]
            while not attempt(history, perform, queue, recorder, action, dues) and not stopped.wait(RETRY_PAUSE):
                pass


def _perform(queue: Any, recorder: Recorder, action: Action, dues: list[int], *, plain: bool) -> None:
    """Perform an action, with these due times (server time, ms)."""
    if action.what in {"cancel", "stop"}:
        queue.cancel(action.ids[0], running=action.what == "stop")
    elif action.what == "reschedule":
        queue.reschedule(action.ids[0], at=from_millis(dues[0]))
    else:
        rows = zip(action.ids, dues, strict=True)
        messages = [_options(id, due, payload_of(id, action.life)) for id, due in rows]
        messages = [one | {"priority": None, "key": None} for one in messages] if plain else messages
        if action.what == "send" and crc32(action.ids[0].encode()) % APART == 0:
            _send_apart(queue, recorder, messages)
        else:
            replacing = _REPLACING.get(action.what, False)
            queue.send_many([NewMessage(**one) for one in messages], replace=replacing)


def _send_apart(queue: Any, recorder: Recorder, messages: list[dict[str, Any]]) -> None:
    """Send each message in a thread of its own, so that they share calls; record what each sender is told."""

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
        "key": key_of(id) or None,
        "retries": profile.retries,
        "expires": profile.expires,
        "missed": "dead" if profile.expires is None else "drop",
        "priority": profile.priority,
        "retention": profile.retention,
    }


# Inspectors


def inspect(task: ProcessTask, recorder: Recorder) -> None:
    """Run as an inspector."""
    stopped, history = threading.Event(), CallHistory(recorder)
    chance = random.Random(f"{task.seed}/inspector-{task.number}")  # noqa: S311 - reproducible, not secret
    with open_recorded(task, history) as queue:
        on_shutdown(stopped.set)
        report_ready()
        while not stopped.wait(INSPECT_EVERY):
            attempt(history, _look, queue, chance)


def _look(queue: Any, chance: random.Random) -> None:
    """Read whatever can be read; raise `WrongCountError` if a result is impossible."""
    counts = queue.counts()
    if min(_numbers(counts)) < 0:
        raise WrongCountError(f"negative count: {counts}")
    queue.dead.list(limit=5)
    if chance.random() < REDRIVE_SHARE:
        queue.dead.redrive(all=True)
    stats = queue.stats()
    if min(*_numbers(stats.counts), *stats.totals.values()) < 0:
        raise WrongCountError(f"negative count: {stats}")
    state = chance.choice(list(State))
    page = queue.list(state, limit=20)
    if any(message.state is not state for message in page.messages):
        raise WrongCountError(f"asked for messages in state {state}: {page}")
    for message in page.messages[:3]:
        queue.get(message.id)


def _numbers(counts: Counts) -> list[int]:
    return [number for name, number in asdict(counts).items() if name != "paused"]


ROLES = {"worker": work, "producer": produce, "inspector": inspect}

if __name__ == "__main__":
    own_task = read_task()
    # Never closed: a worker that ends without stopping records to the last.
    ROLES[sys.argv[1]](own_task, Recorder(own_task.history, own_task.process))
