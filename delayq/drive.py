"""The drivers of a consumer's flow: one with threads, one with asyncio. They do what the flow says and decide nothing.

Callbacks run in workers: threads, or tasks of the event loop. A completion or a wake-up rings a bell, which ends the
flow's wait; completions that come while a round trip is under way are taken in together.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from inspect import isawaitable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from delayq.clock import monotonic
from delayq.errors import UndecodableError
from delayq.flow import Abandon, Event, Recall, Start, Turn, Wait
from delayq.flows.consume import Consumption
from delayq.message import AsyncMessage, Holding, Message, Tools
from delayq.verdict import Completion, Verdict, judge
from delayq.wakeup import AsyncListener, Listener

if TYPE_CHECKING:
    from delayq.executor import AsyncExecutor, Executor


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

    def __init__(
        self, flow: Consumption, executor: Executor, tools: Tools, callback: Callable[[Message[Any]], object], name: str
    ) -> None:
        """Run `callback` on what `flow` claims."""
        self._flow = flow
        self._executor = executor
        self._tools = tools
        self._callback = callback
        self._name = name
        self._stopping = _Stopping()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._rung = False
        self._signalled = False
        self._backlog: SimpleQueue[Holding | None] = SimpleQueue()
        self._completions: deque[Completion] = deque()
        self._workers: list[threading.Thread] = []
        self._made = 0
        self._recalled: list[Holding] = []
        self._recalling = threading.RLock()  # a signal's handler may stop while its own thread is doing so

    def stop(self, grace: float) -> None:
        """Stop within `grace` seconds; harmless when stopped already, and from inside a callback."""
        self._stopping.within(grace)
        with self._recalling:
            self._recall()  # at once: the flow may be busy, and none of these is to start meanwhile
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
                        self._recall()
                        event.recalled, self._recalled = self._recalled, []
                event.now = monotonic()
                event.completions = self._take()
                if self._signalled:  # not swapped: the listener's thread may set it meanwhile
                    self._signalled, event.signalled = False, True
                event.stop_at = self._stopping.at
                step = flow.send(event)
        except StopIteration:
            return
        finally:
            listener.close()
            for _ in self._workers:
                self._backlog.put(None)

    def _start(self, holdings: list[Holding]) -> None:
        for holding in holdings:
            self._backlog.put(holding)
        held = self._flow.held
        wanted = min(self._tools.settings.concurrency, len(held.holdings)) + held.given_up
        while self._made < wanted:
            self._made += 1
            name = f"{self._name}-{self._made}"
            worker = threading.Thread(target=self._work, name=name, daemon=True)
            self._workers.append(worker)
            worker.start()

    def _wait(self, seconds: float) -> None:
        waiting = seconds > 0 and not self._completions
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

    def _take(self) -> list[Completion]:
        taken = []
        while self._completions:
            taken.append(self._completions.popleft())
        return taken

    def _recall(self) -> None:
        while True:
            try:
                holding = self._backlog.get_nowait()
            except Empty:
                return
            if holding is None:  # the end, which is for a worker
                self._backlog.put(None)
                return
            self._recalled.append(holding)

    def _work(self) -> None:
        while (holding := self._backlog.get()) is not None:
            self._completions.append(self._process(holding))
            self._ring()
            if not holding.conclude():  # given up: another worker has taken this one's place
                self._workers.remove(threading.current_thread())
                return

    def _process(self, holding: Holding) -> Completion:
        if holding.lost:
            return Completion(holding, Verdict.NOTHING)
        holding.started = began = monotonic()
        result: object = None
        failure: BaseException | None = None
        try:
            message: Message[Any] = Message(holding, self._tools, self._executor)
        except UndecodableError as error:
            return Completion(holding, Verdict.REJECT, str(error))
        try:
            result = self._callback(message)
        except BaseException as error:  # noqa: BLE001 - whatever a callback raises costs its message one retry only
            failure = error
        return Completion(holding, *judge(holding, result, failure), monotonic() - began)


class AsyncDriver:
    """Drives a consumer with asyncio: the flow in one task, callbacks in up to `concurrency` tasks."""

    def __init__(
        self,
        flow: Consumption,
        executor: AsyncExecutor,
        tools: Tools,
        callback: Callable[[AsyncMessage[Any]], object],
        name: str,
    ) -> None:
        """Run `callback` on what `flow` claims; what it returns is awaited if it can be."""
        self._flow = flow
        self._executor = executor
        self._tools = tools
        self._callback = callback
        self._name = name
        self._stopping = _Stopping()
        self._bell = asyncio.Event()
        self._signalled = False
        self._backlog: asyncio.Queue[Holding] = asyncio.Queue()
        self._completions: list[Completion] = []
        self._workers: list[asyncio.Task[None]] = []
        self._made = 0
        self._recalled: list[Holding] = []

    def stop(self, grace: float) -> None:
        """Stop within `grace` seconds; harmless when stopped already, and from inside a callback."""
        self._stopping.within(grace)
        self._recall()  # at once: the flow may be busy, and none of these is to start meanwhile
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
                    self._recall()
                    event.recalled, self._recalled = self._recalled, []
                elif isinstance(step, Abandon):
                    self._cancel()
                event.now = monotonic()
                event.completions, self._completions = self._completions, []
                event.signalled, self._signalled = self._signalled, False
                event.stop_at = self._stopping.at
                step = flow.send(event)
        except StopIteration:
            return
        finally:
            self._cancel()
            await listener.close()

    def _start(self, holdings: list[Holding]) -> None:
        for holding in holdings:
            self._backlog.put_nowait(holding)
        held = self._flow.held
        wanted = min(self._tools.settings.concurrency, len(held.holdings)) + held.given_up
        while self._made < wanted:
            self._made += 1
            name = f"{self._name}-{self._made}"
            self._workers.append(asyncio.get_running_loop().create_task(self._work(), name=name))

    async def _wait(self, seconds: float) -> None:
        if seconds > 0 and not self._completions:
            try:
                async with asyncio.timeout(seconds):
                    await self._bell.wait()
            except TimeoutError:
                return
        else:
            await asyncio.sleep(0)
        self._bell.clear()

    def _wake(self) -> None:
        self._signalled = True
        self._bell.set()

    def _recall(self) -> None:
        while not self._backlog.empty():
            self._recalled.append(self._backlog.get_nowait())

    def _cancel(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()

    async def _work(self) -> None:
        me = asyncio.current_task()
        while True:
            holding = await self._backlog.get()
            completion = await self._process(holding)
            if me not in self._workers:
                return
            self._completions.append(completion)
            self._bell.set()
            if not holding.conclude():  # given up: another worker has taken this one's place
                self._workers.remove(me)
                return

    async def _process(self, holding: Holding) -> Completion:
        if holding.lost:
            return Completion(holding, Verdict.NOTHING)
        holding.started = began = monotonic()
        result: object = None
        failure: BaseException | None = None
        try:
            message: AsyncMessage[Any] = AsyncMessage(holding, self._tools, self._executor)
        except UndecodableError as error:
            return Completion(holding, Verdict.REJECT, str(error))
        try:
            result = self._callback(message)
            if isawaitable(result):
                result = await result
        except BaseException as error:  # noqa: BLE001 - whatever a callback raises costs its message one retry only
            failure = error
        return Completion(holding, *judge(holding, result, failure), monotonic() - began)
