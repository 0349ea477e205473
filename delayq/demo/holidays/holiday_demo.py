"""Runs the demo: send the year, let two workers deliver it in time lapse, kill one half-way, and count."""

from __future__ import annotations

import math
import os
import secrets
import signal
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

from rich.console import Console
from rich.progress import Progress

from delayq.demo.demo_server import DemoServer, remove_queue
from delayq.demo.holidays.holiday_balance import Balance, ReminderLog, balance_lines
from delayq.demo.holidays.holiday_plan import YEAR, plan_year
from delayq.demo.holidays.holiday_worker import NAME, OPTIONS, HolidayReminder, remind
from delayq.errors import ConfigurationError, DelayqError
from delayq.options import QueueOptions
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.sending.message_options import NewMessage
from delayq.testing.child_process import ChildProcess
from delayq.testing.fault_injection import unreachable
from delayq.values.times import from_millis

COMMAND = ("worker", "delayq.demo.holidays.holiday_worker:queue", "--processes", "2")
LEAD = timedelta(seconds=1)
"""Between sending and the first moment of the year, to have time to send."""
POLL, SHOW = 0.05, 0.25
"""Seconds between two looks at the event log, and between two first deliveries that are printed."""
KILL_AT, KILL_BUSY, KILL_ANYHOW = 0.5, 3, 0.6
"""Share of the year from which a worker is killed if it holds so many reminders; from KILL_ANYHOW on, any."""
TIMEOUT = 30.0
"""Seconds to wait after the year for the last reminders."""


def run_demo(output: Console, server: DemoServer, interrupted: Event, *, seconds: float, **choice: Any) -> Balance:
    """Run the demo and return its balance; once `interrupted`, the balance so far. `choice` is for `plan_year`."""
    with ExitStack() as stack:
        run = _Run(stack, server, output, interrupted)
        first = datetime.now(UTC)
        plan = plan_year(first, **choice)
        run.wait_for_workers(2)
        if not interrupted.is_set():
            run.send(plan, first, seconds)
            run.follow(first, seconds)
        run.workers.close()
        run.read_log()
        balance = run.log.balance(run.queue.stats(), interrupted=interrupted.is_set())
    output.print(*balance_lines(balance), sep="\n", style="green" if balance["adds_up"] else "bold red")
    return balance


class _Run:
    def __init__(self, stack: ExitStack, server: DemoServer, output: Console, interrupted: Event) -> None:
        self.log = ReminderLog({})
        self._output, self._print, self._interrupted = output, output.print, interrupted
        self._options: QueueOptions = {**OPTIONS, "url": server.url, "events": True}
        self.queue = DelayQueue(f"reminders-{secrets.token_hex(4)}", payload_type=HolidayReminder, **self._options)
        stack.callback(remove_queue, server.url, self.queue)
        self.workers = stack.enter_context(ExitStack())
        self._threads: list[DelayQueue[HolidayReminder]] = []
        self._process: ChildProcess | None = None
        self._plan: dict[str, HolidayReminder] = {}
        self._offset, self._shown = 0, 0.0
        self.queue.open()
        self._print(f"delayq demo on {server.label}")
        if server.embedded:
            self._start_thread()
            self._start_thread()
        else:
            self._print(f"$ delayq {' '.join(COMMAND)}")
            self._process = ChildProcess("delayq", *COMMAND, env={"DELAYQ_URL": server.url, NAME: self.queue.name})
            self.workers.callback(self._process.terminate, TIMEOUT)

    def _start_thread(self) -> None:
        """Start a worker in this process, as no other can reach an embedded server."""
        worker = DelayQueue(self.queue.name, payload_type=HolidayReminder, callback=remind, **self._options)
        self.workers.callback(worker.close)
        self._threads.append(worker)
        worker.start_consume()
        self.wait_for_workers(len(self._threads))

    def wait_for_workers(self, number: int) -> None:
        """Wait until so many workers have started, or the demo is interrupted."""
        while len(self.queue.workers()) < number and not self._wait():
            pass

    def _wait(self) -> bool:
        """Wait a moment; return whether the demo is interrupted."""
        if self._process and not self._process.running:
            raise DelayqError(f"the workers ended by themselves: {self._process.describe_exit()}")
        return self._interrupted.wait(POLL)

    def send(self, plan: dict[str, HolidayReminder], first: datetime, seconds: float) -> None:
        """Send the plan: the year from `first` begins in a moment, by the server's clock, and takes so many seconds."""
        if not plan:
            raise ConfigurationError("no public holiday in the coming year: choose other --countries")
        codes = {one.country for one in plan.values()}
        where = f"{len(codes)} countries" if len(codes) > 1 else codes.pop()
        self._print(f"{len(plan):,} reminders of public holidays in {where}, a year in {seconds:g} s, such as:\n")
        zero = (self.queue.stats().at + LEAD).timestamp()
        due = {id: math.ceil((zero + (one.at - first) / YEAR * seconds) * 1000) for id, one in plan.items()}
        self._plan, self.log = plan, ReminderLog(due)
        self.queue.send_many(NewMessage(one, at=from_millis(due[id]), id=id) for id, one in plan.items())

    def follow(self, first: datetime, seconds: float) -> None:
        """Read the event log until everything is settled, and kill a worker half-way."""
        begin = time.monotonic() + LEAD.total_seconds()
        with Progress(console=self._output, transient=True, disable=not self._output.is_interactive) as progress:
            task = progress.add_task("", total=1)
            while self.queue.counts().living and time.monotonic() < begin + seconds + TIMEOUT and not self._wait():
                self.read_log()
                share = max(time.monotonic() - begin, 0) / seconds
                progress.update(task, completed=share, description=f"{first + min(share, 1) * YEAR:%d %b %Y}")
                if share >= KILL_AT and not self.log.killed:
                    self._kill(KILL_BUSY if share < KILL_ANYHOW else 1)

    def _kill(self, at_least: int) -> None:
        """Kill the worker with the most reminders in flight, if these are enough."""
        (holder, held), *_ = [*Counter(self.log.holders.values()).most_common(1), (None, 0)]
        if held < at_least:
            return
        index, worker = next(one for one in enumerate(self.queue.workers()) if one[1].id == holder)
        self.log.killed = holder
        if self._process:
            os.kill(worker.pid, signal.SIGKILL)
        else:  # nothing that it does reaches the server any more
            self.workers.enter_context(unreachable(self._threads[index]))
            self._threads[index].start_consume().stop(0)
            self._start_thread()
        self.read_log()
        held = [*self.log.holders.values()].count(holder)
        self._print(f"✗ worker {index + 1} of 2 is killed with {held} in flight, and replaced", style="red")

    def read_log(self) -> None:
        """Read on in the event log, and print some of the reminders."""
        for event in self.queue.events(self._offset):
            self._offset, life, now = event.offset, self.log.add(event), time.monotonic()
            note = "again" if life.endswith(("xd", "rd")) else "dead letter" if event.kind == "dead" else ""
            if note or (life == "sd" and now >= self._shown + SHOW):
                self._shown, one = now, self._plan[event.id or ""]
                where = f"{one.zone.rpartition('/')[2]:<14}  {note or f'+{self.log.late(event)} ms':<11}  {one.country}"
                line = f"{one.at:%d %b %H:%M}  {where}  {one.holiday}"
                self._print(line, style="magenta" if note else "", no_wrap=True, overflow="ellipsis")
