"""Runs the demo: send a reminder before each public holiday, deliver in time lapse, kill a worker, and count."""

from __future__ import annotations

import math
import os
import random
import re
import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from importlib.resources import files
from threading import Event
from typing import Any
from zoneinfo import ZoneInfo

import holidays
from msgspec import structs
from rich.console import Console
from rich.progress import Progress

from delayq.demo.demo_server import DemoServer, remove_queue
from delayq.demo.holidays.holiday_worker import NAME, OPTIONS, HolidayReminder, remind
from delayq.errors import ConfigurationError, DelayqError
from delayq.options import QueueOptions
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.inspecting.counts import Stats
from delayq.queue.inspecting.event_log import MessageEvent
from delayq.queue.sending.message_options import NewMessage
from delayq.testing.child_process import ChildProcess
from delayq.testing.fault_injection import unreachable
from delayq.values.times import from_millis

YEAR = timedelta(days=365)
_SHARES = {"busy": 0.03, "bounces": 0.003, "unsubscribed": 0.002}


def plan_year(now: datetime, *, countries: str | None = None, seed: int = 0) -> dict[str, HolidayReminder]:
    """Return the reminders due in the year from `now`, in order, by message id: country, date, number on that day.

    `countries` are ISO codes such as `PT,JP`, by default all that are known; `seed` determines which callbacks fail.
    """
    known = holidays.list_supported_countries(include_aliases=False)
    wanted = known if countries is None else set(re.findall(r"\w+", countries.upper()))
    if unknown := sorted(code for code in wanted if code not in known):
        raise ConfigurationError(f"unknown country {', '.join(unknown)}: use ISO codes such as PT or JP")
    years = range(now.year, now.year + 3)  # the last for a New Year's Day just after the end
    table = files("tzdata").joinpath("zoneinfo", "zone.tab").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in reversed(table) if not line.startswith("#"))
    zones = {row[0]: row[2] for row in rows} | {"XK": "Europe/Belgrade"}  # the first of each; Kosovo has none
    found = {id: reminder for code in wanted for id, reminder in _reminders(code, years, zones.get(code, "UTC"))}
    ids = [id for at, id in sorted((one.at, id) for id, one in found.items()) if now <= at < now + YEAR]
    drawn = iter(random.Random(seed).sample(ids, len(ids)))  # noqa: S311 - reproducible, not secret
    for result, share in _SHARES.items():
        for _, id in zip(range(max(1, round(len(ids) * share))), drawn, strict=False):
            found[id] = structs.replace(found[id], result=result)
    return {id: found[id] for id in ids}


def _reminders(code: str, years: range, zone: str) -> Iterator[tuple[str, HolidayReminder]]:
    language = holidays.country_holidays(code).default_language
    calendar = holidays.country_holidays(code, years=years, language=language)
    for day in calendar:
        at = datetime.combine(day - timedelta(days=1), time_of_day(9), ZoneInfo(zone))
        for number, name in enumerate(calendar.get_list(day), 1):
            yield f"{code}-{day}-{number}", HolidayReminder(code, name, at, zone)


_LETTERS = {"sent": "s", "delivered": "d", "acked": "a", "discarded": "c", "dead": "k"}
_LETTERS |= {"nacked": "n", "expired": "x", "released": "r"}
_LIFE = re.compile("s(d[nxr])*(d|d[ac]|d[nx]k)?")
"""What may happen to a reminder: each delivery ends before the next begins, and nothing follows the end."""
ENDS = {
    "delivered_once": "",
    "delivered_after_failure": "at a later attempt",
    "delivered_after_kill": "they were in flight in the killed worker",
    "dead": "failed at every attempt; in the dead letter",
    "discarded": "no longer wanted",
    "left": "still in the queue",
}
"""What a reminder has become, and a note about it."""
Balance = dict[str, Any]
"""Counts of reminders by their ends, the ids of those that came back from the killed worker, and what is wrong."""


class ReminderLog:
    """What the event log has told so far of the reminders; `due` is when each is due, by id (ms)."""

    def __init__(self, due: Mapping[str, int]) -> None:
        self.lives: dict[str, str] = {}
        """The events of each reminder, a letter each."""
        self.holders: dict[str, str | None] = {}
        """The worker of each reminder in flight."""
        self.killed: str | None = None  # of the workers
        self._due = due
        self._redelivered: list[str] = []
        self._late: list[int] = []

    def add(self, event: MessageEvent) -> str:
        """Add an event; return the life of its reminder so far."""
        id, letter = event.id or "", _LETTERS.get(event.kind, "")
        if letter == "d":
            self.holders[id] = event.holder
        elif letter and (holder := self.holders.pop(id, None)) and letter in "xr":
            if holder == self.killed:
                self._redelivered.append(id)
            elif letter == "x":
                letter = "!"  # a living worker's lease must not expire
        life = self.lives[id] = self.lives.get(id, "") + letter
        if letter == "d" and ("d" not in life[:-1] or self.late(event) < 0):
            self._late.append(self.late(event))
        return life

    def late(self, event: MessageEvent) -> int:
        """Return how long after the due time of its reminder an event was (ms)."""
        return round(event.at.timestamp() * 1000) - self._due.get(event.id or "", 0)

    def balance(self, stats: Stats, *, interrupted: bool) -> Balance:
        """Return the balance, given what the queue has counted."""
        ends = Counter(self._end(id) for id in self._due)
        left, late = stats.counts.living, sorted(self._late) or [0]
        lost, early = ends["left"] - left, sum(one < 0 for one in late)
        unexplained = sum(_LIFE.fullmatch(life) is None for life in self.lives.values())
        logged = Counter("".join(self.lives.values()))
        apart = [kind for kind, letter in [*_LETTERS.items()][:5] if stats.totals.get(kind, 0) != logged[letter]]
        checks = {
            f"{lost} were lost": lost,
            f"{early} were delivered before their time": early,
            f"{left} were not settled in time": left and not interrupted,
            f"{unexplained} were delivered more often than explained": unexplained,
            "others than planned were delivered": self.lives.keys() - self._due.keys(),
            f"the event log and the counters differ: {', '.join(apart)}": apart,
        }
        problems = [problem for problem, wrong in checks.items() if wrong]
        late_ms = {name: late[round((len(late) - 1) * at)] for name, at in (("p50", 0.5), ("p99", 0.99), ("max", 1))}
        counts = {end: left if end == "left" else ends[end] for end in ENDS}
        facts = {"lost": lost, "early": early, "late_ms": late_ms, "redelivered": self._redelivered}
        return {"planned": len(self._due), **counts, **facts, "problems": problems, "adds_up": not problems}

    def _end(self, id: str) -> str:
        life = self.lives.get(id, "")
        if not life.endswith("a"):
            return {"k": "dead", "c": "discarded"}.get(life[-1:], "left")
        again = "after_kill" if id in self._redelivered else "after_failure" if "n" in life else "once"
        return f"delivered_{again}"


def balance_lines(balance: Balance) -> Iterator[str]:
    """Yield a balance as text."""
    yield f"\n  {balance['planned']:>6,} planned"
    for sign, (end, note) in zip("=+++++", ENDS.items(), strict=True):
        if balance[end] or end != "left":
            yield f"{sign} {balance[end]:>6,} {end.replace('_', ' '):<25} {note}".rstrip()
    late = ", ".join(f"{name} {value:,} ms" for name, value in balance["late_ms"].items())
    yield f"\n{balance['lost']:,} lost, {balance['early']:,} early; after the due time: {late}"
    yield "It adds up." if balance["adds_up"] else f"It does not add up: {'; '.join(balance['problems'])}."


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
