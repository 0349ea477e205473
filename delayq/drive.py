"""The drivers of a consumer's flow: one with threads, one with asyncio. They do what the flow says and decide nothing.

Callbacks run in workers: threads, or tasks of the event loop. A completion or a wake-up rings a bell, which ends the
flow's wait; completions that come while a round trip is under way are taken in together.

Of the workers that have nothing to do one is called when there is something, and it calls the next if it leaves some:
so quick callbacks wake no more workers than they need.
"""

from __future__ import annotations

import asyncio
import threading
from inspect import isawaitable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from delayq.clock import monotonic
from delayq.flow import Abandon, Event, Recall, Start, Turn, Wait
from delayq.flows.consume import Consumption
from delayq.message import AsyncMessage, Holding, Message, Tools
from delayq.wakeup import AsyncListener, Listener
from delayq.workbench import Callback, Workbench

if TYPE_CHECKING:
    from delayq.executor import AsyncExecutor, Executor

LOOP_SHARE = 0.01
"""Seconds for which a worker of the event loop goes on without a break: a callback may await nothing."""


class _Stopping:
    """When running callbacks are waited for no more; None until a stop was asked for. A later stop only shortens."""

    def __init__(self) -> None:
        self.at: float | None = None

    def within(self, grace: float) -> None:
        at = monotonic() + grace
        self.at = at if self.at is None else min(self.at, at)

    def patience(self) -> bool:
        return self.at is None or monotonic() < self.at


class ThreadDriver:
    """Drives a consumer with threads: one for the flow, and up to `concurrency` workers, made when needed."""

    def __init__(self, flow: Consumption, executor: Executor, tools: Tools, callback: Callback, name: str) -> None:
        """Run `callback` on what `flow` claims."""
        self._flow = flow
        self._executor = executor
        self._tools = tools
        self._name = name
        self._stopping = _Stopping()
        self._bench = Workbench(callback, Message, tools, executor)
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._rung = False
        self._signalled = False
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._called = False
        self._ended = False
        self._workers: set[threading.Thread] = set()
        self._made = 0
        self._recalled: list[Holding] = []
        self._recalling = threading.RLock()  # a signal's handler may stop while its own thread is doing so

    def stop(self, grace: float) -> None:
        """Stop within `grace` seconds; harmless when stopped already, and from inside a callback."""
        self._stopping.within(grace)
        with self._recalling:
            self._bench.recall(self._recalled)  # at once: the flow may be busy, and none is to start meanwhile
        self._ring()

    def is_worker(self, thread: threading.Thread) -> bool:
        """Tell whether a thread runs this driver's callbacks."""
        return thread in self._workers

    def run(self) -> None:
        """Drive the flow to its end."""
        listener = Listener(self._executor, self._tools.calls, self._wake)
        flow = self._flow.run()
        try:
            step = next(flow)
            while True:
                event = Event(0.0)
                if isinstance(step, Turn):
                    event.answers = self._executor.run(step.calls, patience=self._stopping.patience)
                elif isinstance(step, Start):
                    self._start(step.holdings)
                elif isinstance(step, Wait):
                    listener.listen(on=step.listen)
                    self._wait(step.seconds)
                elif isinstance(step, Recall):
                    with self._recalling:
                        self._bench.recall(self._recalled)
                        event.recalled, self._recalled = self._recalled, []
                event.now = monotonic()
                event.completions = self._bench.clear()
                if self._signalled:  # not swapped: the listener's thread may set it meanwhile
                    self._signalled, event.signalled = False, True
                event.stop_at = self._stopping.at
                step = flow.send(event)
        except StopIteration:
            return
        finally:
            listener.close()
            if self._signalled:  # the last wake-up came too late for the flow
                self._executor.run([self._tools.calls.wake()], patience=lambda: False)
            self._ended = True
            for _ in list(self._workers):
                self._calls.put(None)

    def _start(self, holdings: list[Holding]) -> None:
        self._bench.lay(holdings)
        held = self._flow.held
        wanted = min(self._tools.settings.concurrency, len(held.holdings)) + held.given_up
        while self._made < wanted:
            self._made += 1
            name = f"{self._name}-{self._made}"
            worker = threading.Thread(target=self._work, name=name, daemon=True)
            self._workers.add(worker)
            worker.start()
        self._call()

    def _wait(self, seconds: float) -> None:
        waiting = seconds > 0 and not self._bench.finished
        try:
            self._bell.get(block=waiting, timeout=seconds if waiting else None)
        except Empty:
            return
        self._rung = False

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._bell.put(None)

    def _wake(self) -> None:
        self._signalled = True
        self._ring()

    def _call(self) -> None:
        """Call a worker, unless one is on its way."""
        if self._bench.waiting and not self._called:
            self._called = True
            self._calls.put(None)

    def _work(self) -> None:
        bench = self._bench
        while not self._ended:
            taken = bench.take()
            if taken is None:
                self._calls.get()
                self._called = False
                continue
            self._call()
            batch, holdings, given = taken
            if given is not None:
                result: object = None
                failure: BaseException | None = None
                try:
                    result = bench.function(given)
                except BaseException as error:  # noqa: BLE001 - whatever a callback raises costs one retry only
                    failure = error
                bench.put_back(batch, holdings, result, failure)
            self._ring()
            if not batch.conclude():  # given up: another worker has taken this one's place
                self._workers.discard(threading.current_thread())
                return


class AsyncDriver:
    """Drives a consumer with asyncio: the flow in one task, callbacks in up to `concurrency` tasks."""

    def __init__(self, flow: Consumption, executor: AsyncExecutor, tools: Tools, callback: Callback, name: str) -> None:
        """Run `callback` on what `flow` claims; what it returns is awaited if it can be."""
        self._flow = flow
        self._executor = executor
        self._tools = tools
        self._name = name
        self._stopping = _Stopping()
        self._bench = Workbench(callback, AsyncMessage, tools, executor)
        self._bell = asyncio.Event()
        self._signalled = False
        self._calls: asyncio.Queue[None] = asyncio.Queue()
        self._called = False
        self._workers: set[asyncio.Task[Any]] = set()
        self._made = 0
        self._recalled: list[Holding] = []

    def stop(self, grace: float) -> None:
        """Stop within `grace` seconds; harmless when stopped already, and from inside a callback."""
        self._stopping.within(grace)
        self._bench.recall(self._recalled)  # at once: the flow may be busy, and none of these is to start meanwhile
        self._bell.set()

    def is_worker(self, task: asyncio.Task[Any] | None) -> bool:
        """Tell whether a task runs this driver's callbacks."""
        return task in self._workers

    async def run(self) -> None:
        """Drive the flow to its end."""
        listener = AsyncListener(self._executor, self._tools.calls, self._wake)
        flow = self._flow.run()
        try:
            step = next(flow)
            while True:
                event = Event(0.0)
                if isinstance(step, Turn):
                    event.answers = await self._executor.run(step.calls, patience=self._stopping.patience)
                elif isinstance(step, Start):
                    self._start(step.holdings)
                elif isinstance(step, Wait):
                    listener.listen(on=step.listen)
                    await self._wait(step.seconds)
                elif isinstance(step, Recall):
                    self._bench.recall(self._recalled)
                    event.recalled, self._recalled = self._recalled, []
                elif isinstance(step, Abandon):
                    self._cancel()
                event.now = monotonic()
                event.completions = self._bench.clear()
                event.signalled, self._signalled = self._signalled, False
                event.stop_at = self._stopping.at
                step = flow.send(event)
        except StopIteration:
            return
        finally:
            self._cancel()
            await listener.close()
            if self._signalled:  # the last wake-up came too late for the flow
                await self._executor.run([self._tools.calls.wake()], patience=lambda: False)

    def _start(self, holdings: list[Holding]) -> None:
        self._bench.lay(holdings)
        held = self._flow.held
        wanted = min(self._tools.settings.concurrency, len(held.holdings)) + held.given_up
        while self._made < wanted:
            self._made += 1
            name = f"{self._name}-{self._made}"
            self._workers.add(asyncio.get_running_loop().create_task(self._work(), name=name))
        self._call()

    async def _wait(self, seconds: float) -> None:
        if seconds > 0 and not self._bench.finished:
            try:
                async with asyncio.timeout(seconds):
                    await self._bell.wait()
            except TimeoutError:
                return
        self._bell.clear()

    def _wake(self) -> None:
        self._signalled = True
        self._bell.set()

    def _call(self) -> None:
        """Call a worker, unless one is on its way."""
        if self._bench.waiting and not self._called:
            self._called = True
            self._calls.put_nowait(None)

    def _cancel(self) -> None:
        workers, self._workers = self._workers, set()
        for worker in workers:
            worker.cancel()

    async def _work(self) -> None:
        bench, me = self._bench, cast("asyncio.Task[Any]", asyncio.current_task())
        now = resumed = monotonic()
        while True:
            if now - resumed > LOOP_SHARE:
                await asyncio.sleep(0)
                now = resumed = monotonic()
            taken = bench.take()
            if taken is None:
                await self._calls.get()
                self._called = False
                now = resumed = monotonic()
                continue
            self._call()
            batch, holdings, given = taken
            if given is not None:
                result: object = None
                failure: BaseException | None = None
                try:
                    result = bench.function(given)
                    if isawaitable(result):
                        result = await result
                except BaseException as error:  # noqa: BLE001 - whatever a callback raises costs one retry only
                    failure = error
                if me not in self._workers:
                    return
                now = bench.put_back(batch, holdings, result, failure)
            self._bell.set()
            if not batch.conclude():  # given up: another worker has taken this one's place
                self._workers.discard(me)
                return
