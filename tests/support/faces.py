"""Both faces of a queue under one blocking interface, so that one test body is run against either.

`Blocking` opens a `DelayQueue` as it is. `Asyncio` opens an `AsyncDelayQueue` that lives in an event loop of its own
thread, and answers with a stand-in whose methods wait for the coroutines. A callback is a plain function here as there:
it runs in a thread, and what it calls is carried out by the very task in which the asyncio face called it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from typing import Any

import redis
import redis.asyncio

from delayq import (
    AsyncConsuming,
    AsyncDeadLetter,
    AsyncDelayQueue,
    AsyncLease,
    AsyncLimits,
    AsyncMessage,
    AsyncSchedules,
    AsyncSelection,
    AsyncTask,
    AsyncWorker,
    DelayQueue,
    Worker,
)
from delayq.queue.partitioned.leases import AsyncPartitionedLease
from delayq.queue.partitioned.shared_limits import PartitionedLimits
from delayq.queue.partitioned.views import PartitionedDeadLetter, PartitionedSchedules, Selected

Errand = tuple[Callable[[], Any], "Future[Any]"]


class Blocking:
    """The blocking face."""

    def open(self, name: str, **options: Any) -> Any:
        """Open a queue."""
        return DelayQueue(name, **options)

    def worker(self, queues: dict[Any, int], **options: Any) -> Any:
        """Make a worker of queues that were opened here."""
        return Worker(queues, **options)

    def matching(self, pattern: str, like: Any, **options: Any) -> Any:
        """Make a worker of the queues of a pattern."""
        return Worker.matching(pattern, like, **options)

    def client(self, url: str, **options: Any) -> Any:
        """Return a client such as a user may pass to a queue."""
        return redis.Redis.from_url(url, **options)

    def do(self, make: Callable[[], Any]) -> Any:
        """Call something of a client."""
        return make()

    def close(self) -> None:
        """Nothing needs to be ended."""


class Asyncio:
    """The asyncio face, with an event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._threads = ThreadPoolExecutor(64, thread_name_prefix="callback")
        self._adapted: dict[Callable[[Any], Any], Callable[[Any], Awaitable[Any]]] = {}
        self._here = threading.local()
        self._thread = threading.Thread(target=self._loop.run_forever, name="asyncio", daemon=True)
        self._thread.start()

    def open(self, name: str, *, callback: Any = None, **options: Any) -> Any:
        """Open the asyncio face of a queue, under the interface of the blocking one."""
        queue = self.do(lambda: AsyncDelayQueue(name, **options))
        if callback is not None:
            queue.callback(callback)
        return queue

    def worker(self, queues: dict[Any, int], **options: Any) -> Any:
        """Make a worker of queues that were opened here."""
        if "limits" in options:
            options["limits"] = {queue._subject: limit for queue, limit in options["limits"].items()}
        return Stand(AsyncWorker({queue._subject: weight for queue, weight in queues.items()}, **options), self)

    def matching(self, pattern: str, like: Any, **options: Any) -> Any:
        """Make a worker of the queues of a pattern."""
        return Stand(AsyncWorker.matching(pattern, like._subject, **options), self)

    def client(self, url: str, **options: Any) -> Any:
        """Return a client such as a user may pass to a queue."""
        return redis.asyncio.Redis.from_url(url, **options)

    def do(self, make: Callable[[], Any]) -> Any:
        """Call in the loop, await what can be awaited, and return the result; from a callback, within its task."""
        errand: Errand = (make, Future())
        desk: _Desk | None = getattr(self._here, "desk", None)
        if desk is not None:
            self._loop.call_soon_threadsafe(desk.leave, errand)
        else:
            asyncio.run_coroutine_threadsafe(self._carry_out(errand), self._loop)
        return self._stand(errand[1].result())

    def adapt(self, callback: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        """Return a coroutine function that runs a plain callback in a thread and does its errands meanwhile."""
        if callback in self._adapted:
            return self._adapted[callback]

        @wraps(callback)
        async def adapted(given: Any) -> Any:
            desk = _Desk()
            ending: Future[Any] = Future()
            self._threads.submit(self._call, callback, self._stand(given), desk, ending)
            try:
                while (errand := await desk.errands.get()) is not None:
                    await self._carry_out(errand)
            finally:
                desk.close()
            result, error = ending.result()
            if error is not None:
                raise error
            return result

        self._adapted[callback] = adapted
        return adapted

    def close(self) -> None:
        """End the loop, its tasks and its thread."""
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._threads.shutdown(wait=False)

    def _call(
        self,
        callback: Callable[[Any], Any],
        given: Any,
        desk: _Desk,
        ending: Future[tuple[Any, BaseException | None]],
    ) -> None:
        self._here.desk = desk
        try:
            ending.set_result((callback(given), None))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the task
            ending.set_result((None, error))
        finally:
            del self._here.desk
            self._loop.call_soon_threadsafe(desk.errands.put_nowait, None)

    async def _carry_out(self, errand: Errand) -> None:
        make, future = errand
        try:
            result = make()
            if isinstance(result, Awaitable):
                result = await result
        except BaseException as error:
            future.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            future.set_result(result)

    def _stand(self, result: Any) -> Any:
        if isinstance(result, list):
            return [self._stand(one) for one in result]
        if isinstance(result, AsyncGenerator):
            return self._each(result)
        return Stand(result, self) if isinstance(result, _ASYNC) else result

    def _each(self, items: AsyncGenerator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    item = self.do(items.__anext__)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self.do(items.aclose)


class Stand:
    """Stands for an object of the asyncio face: what is called is carried out in the loop, and waited for."""

    def __init__(self, subject: Any, loop: Asyncio) -> None:
        self._subject = subject
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subject, name)
        if not callable(found):
            return self._loop._stand(found)
        return lambda *args, **options: self._loop.do(lambda: found(*args, **options))

    def callback(self, function: Any) -> Any:
        self._subject.callback(self._loop.adapt(function))
        return function

    def batch_callback(self, function: Any, **options: Any) -> Any:
        self._subject.batch_callback(self._loop.adapt(function), **options)
        return function

    def cron(self, *args: Any, **options: Any) -> Any:
        return self._adapting(self._subject.cron(*args, **options))

    def every(self, *args: Any, **options: Any) -> Any:
        return self._adapting(self._subject.every(*args, **options))

    def task(self, *function: Any, **options: Any) -> Any:
        made = self._subject.task(*function, **options)
        return self._loop._stand(made) if function else lambda decorated: self._loop._stand(made(decorated))

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._subject(*args, **options)

    def _adapting(self, register: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def adapted(function: Any) -> Any:
            register(wraps(function)(self._loop.adapt(function)))
            return function

        return adapted

    def __enter__(self) -> Any:
        entered = self._loop.do(lambda: self._subject.__aenter__())
        return self if entered is self._subject else entered

    def __exit__(self, *raised: object) -> Any:
        return self._loop.do(lambda: self._subject.__aexit__(*raised))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loop._stand(list(self._subject)))

    def __len__(self) -> int:
        return len(self._subject)

    def __repr__(self) -> str:
        return repr(self._subject)


class _Desk:
    """Where a callback's thread leaves what its task is to do; used in the loop only."""

    def __init__(self) -> None:
        self.errands: asyncio.Queue[Errand | None] = asyncio.Queue()
        self._closed = False

    def leave(self, errand: Errand) -> None:
        if self._closed:
            errand[1].set_exception(asyncio.CancelledError())
        else:
            self.errands.put_nowait(errand)

    def close(self) -> None:
        self._closed = True
        while not self.errands.empty():
            if errand := self.errands.get_nowait():
                errand[1].set_exception(asyncio.CancelledError())


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_ASYNC = (
    AsyncDelayQueue,
    AsyncMessage,
    AsyncLease,
    AsyncConsuming,
    AsyncDeadLetter,
    AsyncLimits,
    AsyncSelection,
    AsyncSchedules,
    AsyncTask,
    AsyncPartitionedLease,
    PartitionedDeadLetter,
    PartitionedLimits,
    PartitionedSchedules,
    Selected,
)
