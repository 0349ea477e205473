"""The run: send the year, let two workers deliver it in time lapse, kill one in the middle, draw up the account."""

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

from delayq.clock import moment
from delayq.config import QueueOptions
from delayq.demo.account import Account, Final, Kill, Ledger, settle
from delayq.demo.crew import ProcessWorker, ThreadWorker, Worker
from delayq.demo.reminders import Reminder, TimeLapse, a_year_after, plan_year
from delayq.demo.screen import Progress, Screen
from delayq.demo.server import Server
from delayq.demo.worker import LEASE, OPTIONS, Gone, Inbox, Ready, Report, server_clock
from delayq.doctor import removal
from delayq.executor import open_executor
from delayq.inspector import MessageInfo, Page
from delayq.keys import Keys
from delayq.producer import NewMessage
from delayq.queue import DelayQueue
from delayq.states import State

WORKERS = 2
LEAD = 1.0
"""Seconds between the sending and the first moment of the year, for the sending itself."""
KILL_AT, KILL_BUSY, KILL_ANYHOW = 0.5, 3, 0.6
"""Share of the year from which a worker is killed once it has so many callbacks under way; from then on, any."""
FRAME, LOOK_EVERY = 0.08, 0.25
"""Seconds between two pictures, and between two looks at the queue."""
START_PATIENCE, END_PATIENCE = 30.0, 30.0
"""Seconds to wait for workers to start, and for the last settlements after the year."""


class DemoError(Exception):
    """The demo could not be carried out."""


def run_demo(
    screen: Screen,
    server: Server,
    interrupted: threading.Event,
    *,
    seconds: float = 30.0,
    countries: Iterable[str] | None = None,
    seed: int = 0,
) -> Account:
    """Run the demo and return its account; once `interrupted`, that of what has happened so far."""
    with ExitStack() as stack:
        stack.enter_context(screen)
        run = _Run(stack, server, screen, interrupted)
        run.start_workers()
        first = datetime.now(UTC)
        plan = plan_year(first, countries=countries, seed=seed)
        if not plan:
            raise DemoError("these countries have no public holiday in the coming year")
        run.introduce(plan, seconds)
        if run.wait_for_workers():
            run.send(first, seconds)
            run.follow()
        run.stop_workers()
        account = run.account()
    screen.account(account, run.kills)
    return account


class _Run:
    """One run."""

    def __init__(self, stack: ExitStack, server: Server, screen: Screen, interrupted: threading.Event) -> None:
        self.kills: list[Kill] = []
        self._stack = stack
        self._server = server
        self._screen = screen
        self._interrupted = interrupted
        self._plan: dict[str, Reminder] = {}
        self._name = f"reminders-{secrets.token_hex(4)}"
        options: QueueOptions = {**OPTIONS, "url": server.url}
        self._queue = DelayQueue(self._name, payload_type=Reminder, **options)
        self._executor = open_executor(options, self._queue.settings)
        self._stack.callback(self._close)
        self._inbox = Inbox()
        self._workers: dict[int, Worker] = {}
        self._ready: set[int] = set()
        self._ledger = Ledger()
        self._due: dict[str, int] = {}
        self._stored_again = 0
        self._stopping = False
        self._began = time.monotonic()

    def start_workers(self) -> None:
        """Start the workers, which takes them a moment."""
        workers = "" if self._server.embedded else ", two worker processes"
        self._screen.say(f"delayq demo on {self._server.label}{workers}", "bold")
        for _ in range(WORKERS):
            self._hire()

    def introduce(self, plan: dict[str, Reminder], seconds: float) -> None:
        """Take the reminders on, and say what they are."""
        self._plan = plan
        countries = len({reminder.country for reminder in plan.values()})
        whose = f"{countries} countries" if countries > 1 else next(iter(plan.values())).country
        what = f"{len(plan):,} reminders of public holidays of {whose}, a year in {seconds:g} s\n"
        self._screen.say(what, "bold")

    def wait_for_workers(self) -> bool:
        """Wait until the workers can be let go; returns whether they can."""
        end = time.monotonic() + START_PATIENCE
        while len(self._ready) < WORKERS and not self._interrupted.is_set():
            if time.monotonic() > end:
                raise DemoError(f"the workers did not start within {START_PATIENCE:g} s")
            self._listen(FRAME)
        return not self._interrupted.is_set()

    def send(self, first: datetime, seconds: float) -> None:
        """Send the year, and send it again: the ids are the same, so nothing may be stored a second time."""
        zero = server_clock(self._executor) // 1000 + round(LEAD * 1000)
        self._lapse = TimeLapse(first, a_year_after(first), zero, seconds)
        self._offset = zero - LEAD * 1000 - time.monotonic() * 1000
        self._end = time.monotonic() + LEAD + seconds + END_PATIENCE
        planned = {id: self._lapse.due(reminder.at) for id, reminder in self._plan.items()}
        messages = [NewMessage(reminder, at=moment(planned[id]), id=id) for id, reminder in self._plan.items()]
        self._due = {id: planned[id] for id in self._queue.send_many(messages).new}
        # No worker is at it yet. Of a message settled meanwhile, the id would be free again.
        self._stored_again = len(self._queue.send_many(messages).new)
        self._order = list(self._plan.values())
        self._dues = list(planned.values())
        for worker in self._workers.values():
            worker.go()

    def follow(self) -> None:
        """Take in what the workers report until everything is settled, and kill one of them in the middle."""
        stats = self._queue.stats()
        looked = drawn = time.monotonic()
        while not self._interrupted.is_set():
            self._listen(FRAME / 2)
            if not self.kills:
                self._maybe_kill()
            now = time.monotonic()
            if now >= looked + LOOK_EVERY:
                stats, looked = self._queue.stats(), now
                if stats.counts.living == 0 or now > self._end:
                    return
            if now >= drawn + FRAME:
                drawn = now
                self._screen.refresh(self._progress(stats.counts.active, stats.counts.dead))

    def stop_workers(self) -> None:
        """Let the workers finish what is under way, and take in their last reports."""
        self._stopping = True
        for worker in self._workers.values():
            worker.stop()
        end = time.monotonic() + 2 * LEASE + 1
        while self._workers and time.monotonic() < end:
            self._listen(FRAME)
        stats = self._queue.stats()
        if self._due:
            self._screen.refresh(self._progress(stats.counts.active, stats.counts.dead))

    def account(self) -> Account:
        """Ask the server how it ended, and settle it with the ledger."""
        stats = self._queue.stats()
        totals = stats.totals
        final = Final(
            sent=totals.get("sent", 0),
            acked=totals.get("acked", 0),
            dead=totals.get("dead", 0),
            discarded=totals.get("discarded", 0),
            left=stats.counts.living,
            dead_ids=frozenset(message.id for message in self._pages(self._queue.dead.list)),
        )
        return settle(
            self._due,
            self._ledger,
            final,
            self.kills,
            stored_again=self._stored_again,
            countries=len({self._plan[id].country for id in self._due}),
            seconds=time.monotonic() - self._began,
            server=self._server.label,
            interrupted=self._interrupted.is_set(),
        )

    # The workers

    def _hire(self) -> Worker:
        number = len(self._workers) + len(self.kills) + 1
        make = ThreadWorker if self._server.embedded else ProcessWorker
        worker = make(number, self._server.url, self._name, self._inbox)
        self._stack.callback(worker.close)
        self._workers[number] = worker
        return worker

    def _listen(self, patience: float) -> None:
        """Take in reports: wait for the first so long, and take what has come with it."""
        with suppress(Empty):
            self._take(self._inbox.get(timeout=patience))
            while True:
                self._take(self._inbox.get_nowait())

    def _take(self, report: Report) -> None:
        if isinstance(report, Ready):
            self._ready.add(report.worker)
            if self._due and not self._stopping:
                self._workers[report.worker].go()
        elif isinstance(report, Gone):
            worker = self._workers.pop(report.worker, None)
            if worker is not None and not self._stopping:
                raise DemoError(f"{worker.name} ended by itself: {worker.last_words()}")
        else:
            self._ledger.add(report)
            reminder = self._plan.get(report.id)
            if reminder is not None:
                self._screen.show(reminder, report)

    def _maybe_kill(self) -> None:
        """In the middle of the year kill the worker that has the most callbacks under way."""
        share = self._lapse.share(self._server_now())
        if share < KILL_AT:
            return
        busy = {number: len(self._ledger.under_way.get(number, ())) for number in self._workers}
        number = max(busy, key=lambda number: busy[number])
        if busy[number] >= (KILL_BUSY if share < KILL_ANYHOW else 1):
            self._kill(self._workers.pop(number))

    def _kill(self, worker: Worker) -> None:
        """Kill a worker in the midst of its callbacks, read from the server what it held, and start another."""
        worker.kill()
        self._listen(0)  # its last reports: what it had begun is known now
        held = self._ledger.held_by(worker.number, self._pages(partial(self._queue.list, State.ACTIVE)))
        self.kills.append(Kill(worker.number, worker.name, held))
        how = "abandoned" if self._server.embedded else "SIGKILL"
        self._screen.say(f"✗ {worker.name}: {how} with {len(held)} in flight, leased for {LEASE:g} s", "bold red")
        self._screen.say(f"✓ {self._hire().name} takes its place", "green")

    def _pages(self, read: Callable[..., Page]) -> list[MessageInfo]:
        page = read(limit=1000)
        messages = page.messages
        while page.cursor is not None:
            page = read(limit=1000, cursor=page.cursor)
            messages += page.messages
        return messages

    # Where it stands

    def _server_now(self) -> float:
        return self._offset + time.monotonic() * 1000

    def _progress(self, in_flight: int, dead: int) -> Progress:
        now = self._server_now()
        share = self._lapse.share(now)
        later = bisect_right(self._dues, now)
        return Progress(
            share=share,
            today=self._lapse.first + share * (self._lapse.end - self._lapse.first),
            sent=len(self._due),
            next_due=self._order[later] if later < len(self._order) else None,
            in_flight=in_flight,
            dead=dead,
            workers=len(self._workers),
            kills=self.kills,
            ledger=self._ledger,
        )

    def _close(self) -> None:
        """Remove every trace of the run from the server."""
        prefix = OPTIONS["prefix"]
        self._executor.run(removal(Keys.of(prefix, self._name), prefix, self._name))
        self._executor.close()
        self._queue.close()
