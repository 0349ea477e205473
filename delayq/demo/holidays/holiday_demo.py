"""Runs the demo: send the year, let two workers deliver it in time lapse, kill one half-way, print the balance."""

from __future__ import annotations

import secrets
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from queue import Empty

from delayq.broker.transport.executor import open_executor
from delayq.demo.demo_server import DemoServer, remove_queue
from delayq.demo.holidays.balance import Balance, DeliveryLog, KilledWorker, make_balance
from delayq.demo.holidays.demo_screen import DemoProgress, DemoScreen
from delayq.demo.holidays.demo_worker import LEASE, OPTIONS, Inbox, Report, WorkerReport, server_clock
from delayq.demo.holidays.holiday_reminders import HolidayReminder, TimeLapse, a_year_after, plan_year
from delayq.demo.holidays.started_workers import StartedWorker, start_worker
from delayq.errors import DelayqError
from delayq.options import QueueOptions
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.inspecting.counts import Counts
from delayq.queue.inspecting.message_info import MessageInfo, Page
from delayq.queue.sending.message_options import NewMessage
from delayq.values.states import State
from delayq.values.times import from_millis

WORKERS = 2
LEAD = 1.0
"""Seconds between sending and the first moment of the year, to have time to send."""
KILL_AT, KILL_BUSY, KILL_ANYHOW = 0.5, 3, 0.6
"""Share of the year from which a worker is killed once it runs so many callbacks; from KILL_ANYHOW on, any."""
FRAME, POLL = 0.08, 0.25
"""Seconds between two updates of the screen, and between two polls of the queue."""
START_TIMEOUT, END_TIMEOUT = 30.0, 30.0
"""Seconds to wait for the workers to start, and for the last settlements after the year."""


class DemoError(DelayqError):
    """The demo could not be carried out."""


def run_demo(
    screen: DemoScreen,
    server: DemoServer,
    interrupted: threading.Event,
    *,
    seconds: float = 30.0,
    countries: Iterable[str] | None = None,
    seed: int = 0,
) -> Balance:
    """Run the demo and return its balance; once `interrupted`, the balance so far."""
    with ExitStack() as stack:
        stack.enter_context(screen)
        run = _Run(stack, server, screen, interrupted)
        run.start_workers()
        first = datetime.now(UTC)
        run.plan(plan_year(first, countries=countries, seed=seed), seconds)
        if run.wait_for_workers():
            run.send(first, seconds)
            run.follow()
        run.stop_workers()
        balance = run.balance()
    screen.balance(balance, run.kills)
    return balance


class _Run:
    def __init__(self, stack: ExitStack, server: DemoServer, screen: DemoScreen, interrupted: threading.Event) -> None:
        self.kills: list[KilledWorker] = []
        self._stack = stack
        self._server = server
        self._screen = screen
        self._interrupted = interrupted
        self._plan: dict[str, HolidayReminder] = {}
        options: QueueOptions = {**OPTIONS, "url": server.url}
        self._queue = DelayQueue(f"reminders-{secrets.token_hex(4)}", payload_type=HolidayReminder, **options)
        stack.callback(remove_queue, server.url, self._queue)
        self._executor = open_executor(options, self._queue.settings)
        stack.callback(self._executor.close)
        self._inbox, self._log = Inbox(), DeliveryLog()
        self._workers: dict[int, StartedWorker] = {}
        self._ready: set[int] = set()
        self._due: dict[str, int] = {}
        self._stored_again = 0
        self._stopping = False
        self._began = time.monotonic()

    def start_workers(self) -> None:
        workers = "" if self._server.embedded else ", two worker processes"
        self._screen.say(f"delayq demo on {self._server.label}{workers}", "bold")
        for _ in range(WORKERS):
            self._start_worker()

    def plan(self, plan: dict[str, HolidayReminder], seconds: float) -> None:
        """Keep the plan, and say what will be sent."""
        if not plan:
            raise DemoError("no public holiday in the coming year: choose other --countries")
        self._plan = plan
        countries = len({reminder.country for reminder in plan.values()})
        where = f"{countries} countries" if countries > 1 else next(iter(plan.values())).country
        self._screen.say(f"{len(plan):,} reminders of public holidays in {where}, a year in {seconds:g} s\n", "bold")

    def wait_for_workers(self) -> bool:
        """Wait until the workers are ready; return False if interrupted."""
        end = time.monotonic() + START_TIMEOUT
        while len(self._ready) < WORKERS and not self._interrupted.is_set():
            if time.monotonic() > end:
                raise DemoError(f"the workers did not start within {START_TIMEOUT:g} s")
            self._read_reports(FRAME)
        return not self._interrupted.is_set()

    def send(self, first: datetime, seconds: float) -> None:
        """Send the year, and send it again: the ids are the same, so nothing may be stored a second time."""
        zero = server_clock(self._executor) // 1000 + round(LEAD * 1000)
        self._lapse = TimeLapse(first, a_year_after(first), zero, seconds)
        self._offset = zero - LEAD * 1000 - time.monotonic() * 1000
        self._end = time.monotonic() + LEAD + seconds + END_TIMEOUT
        planned = {id: self._lapse.due(reminder.at) for id, reminder in self._plan.items()}
        messages = [NewMessage(reminder, at=from_millis(planned[id]), id=id) for id, reminder in self._plan.items()]
        self._due = {id: planned[id] for id in self._queue.send_many(messages).new}
        # No worker is consuming yet: the id of a message that was settled in between could be used again.
        self._stored_again = len(self._queue.send_many(messages).new)
        self._order = list(self._plan.values())
        self._dues = list(planned.values())
        for worker in self._workers.values():
            worker.go()

    def follow(self) -> None:
        """Process the workers' reports until everything is settled, and kill a worker half-way."""
        stats = self._queue.stats()
        polled = drawn = time.monotonic()
        while not self._interrupted.is_set():
            self._read_reports(FRAME / 2)
            if not self.kills:
                self._maybe_kill()
            now = time.monotonic()
            if now >= polled + POLL:
                stats, polled = self._queue.stats(), now
                if stats.counts.living == 0 or now > self._end:
                    return
            if now >= drawn + FRAME:
                drawn = now
                self._screen.refresh(self._progress(stats.counts))

    def stop_workers(self) -> None:
        """Let the workers finish what is in flight, and process their last reports."""
        self._stopping = True
        for worker in self._workers.values():
            worker.stop()
        end = time.monotonic() + 2 * LEASE + 1
        while self._workers and time.monotonic() < end:
            self._read_reports(FRAME)
        if self._due:
            self._screen.refresh(self._progress(self._queue.counts()))

    def balance(self) -> Balance:
        """Compare the server's totals with the workers' reports."""
        stats = self._queue.stats()
        totals = {name: stats.totals.get(name, 0) for name in ("sent", "acked", "dead", "discarded")}
        return make_balance(
            self._due,
            self._log,
            totals | {"left": stats.counts.living},
            {message.id for message in _all_pages(self._queue.dead.list)},
            self.kills,
            stored_again=self._stored_again,
            countries=len({self._plan[id].country for id in self._due}),
            seconds=round(time.monotonic() - self._began, 2),
            server=self._server.label,
            interrupted=self._interrupted.is_set(),
        )

    # The workers

    def _start_worker(self) -> StartedWorker:
        number = len(self._workers) + len(self.kills) + 1
        server = self._server
        worker = start_worker(number, server.url, self._queue.name, self._inbox, embedded=server.embedded)
        self._stack.callback(worker.close)
        self._workers[number] = worker
        return worker

    def _read_reports(self, timeout: float) -> None:
        """Process reports: wait for the first, and take those that have come with it."""
        with suppress(Empty):
            self._process(self._inbox.get(timeout=timeout))
            while True:
                self._process(self._inbox.get_nowait())

    def _process(self, report: Report) -> None:
        if isinstance(report, WorkerReport) and not report.gone:
            self._ready.add(report.worker)
            if self._due and not self._stopping:
                self._workers[report.worker].go()
        elif isinstance(report, WorkerReport):
            if (worker := self._workers.pop(report.worker, None)) and not self._stopping:
                raise DemoError(f"{worker.name} ended by itself: {worker.describe_exit()}")
        else:
            self._log.add(report)
            if reminder := self._plan.get(report.id):
                self._screen.show(reminder, report)

    def _maybe_kill(self) -> None:
        """Half-way through the year, kill the busiest worker in the middle of its callbacks, and start another."""
        share = self._lapse.share(self._server_now())
        busy = {number: len(self._log.running.get(number, ())) for number in self._workers}
        number = max(busy, key=lambda number: busy[number])
        if share < KILL_AT or busy[number] < (KILL_BUSY if share < KILL_ANYHOW else 1):
            return
        worker = self._workers.pop(number)
        worker.kill()
        self._read_reports(0)  # its last reports: they tell which callbacks it had started
        in_flight = self._log.in_flight(worker.number, _all_pages(partial(self._queue.list, State.ACTIVE)))
        self.kills.append(KilledWorker(worker.number, worker.name, in_flight))
        what = f"{worker.killed_by} with {len(in_flight)} in flight, leased for {LEASE:g} s"
        self._screen.say(f"✗ {worker.name}: {what}", "bold red")
        self._screen.say(f"✓ {self._start_worker().name} replaces it", "green")

    # Progress

    def _server_now(self) -> float:
        return self._offset + time.monotonic() * 1000

    def _progress(self, counts: Counts) -> DemoProgress:
        now = self._server_now()
        share = self._lapse.share(now)
        later = bisect_right(self._dues, now)
        return DemoProgress(
            share=share,
            today=self._lapse.first + share * (self._lapse.end - self._lapse.first),
            sent=len(self._due),
            next_due=self._order[later] if later < len(self._order) else None,
            in_flight=counts.active,
            dead=counts.dead,
            workers=len(self._workers),
            kills=self.kills,
            log=self._log,
        )


def _all_pages(read: Callable[..., Page]) -> list[MessageInfo]:
    page = read(limit=1000)
    messages = page.messages
    while page.cursor is not None:
        page = read(limit=1000, cursor=page.cursor)
        messages += page.messages
    return messages
