"""Reminders: the command imports an iCalendar file of 100,000 events twice; also the size of its plan in Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from delayq.cli.support.exit_codes import Exit
from measure.bench_server import QUEUE, BenchServer
from measure.figure import BYTES, Figure, Measurement, Reading, at_most

EVENTS = 100_000
RECURRING = 20
"""One of this many events recurs, weekly for ten weeks."""
SECONDS = " s"
COMMAND = [
    *("remind", "import", "team.ics", "--queue", QUEUE, "--until", "2y"),
    *("--before", "15m", "--before", "1 day before at 09:00", "--quiet", "22:00-07:00"),
]


def reminding(server: BenchServer) -> Iterator[Reading]:
    """Seconds of the whole command, including its start: planned, imported, and imported again."""
    n = server.many(EVENTS)
    server.empty()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "team.ics", n)
        note = f"{n:,} events, {n + n // RECURRING * 9:,} occurrences, {2 * (n + n // RECURRING * 9):,} reminders"
        planned, memory = _run(server, folder, ["remind", "plan", *COMMAND[2:], "--json"])
        yield Reading("remind_plan", planned, note=note)
        yield Reading("remind_memory", memory, note=note)
        yield Reading("remind_import", _run(server, folder, COMMAND)[0], note=note)
        yield Reading("remind_again", _run(server, folder, COMMAND)[0], note=note)
    yield Reading("remind_kept", server.client.hstrlen(f"delayq:{{{QUEUE}}}:plans", "team"), note=note)


def _run(server: BenchServer, folder: str, command: list[str]) -> tuple[float, float]:
    """Return the seconds and the maximal megabytes of a command."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "delayq", "--url", server.url, "--timeout", "60s", *command],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != Exit.OK:
        raise RuntimeError(f"{command[1]} ended with {process.returncode}")
    return took, used.ru_maxrss * 1024 / 1e6


def write(path: Path, n: int) -> None:
    """Write a file of events like Google does, spread over a year from next week."""
    first = datetime.now(UTC) + timedelta(days=7)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//x//EN\r\nX-WR-TIMEZONE:Europe/Berlin\r\n")
        for number in range(n):
            day = first + timedelta(days=number % 300)
            lines = [
                "BEGIN:VEVENT",
                f"DTSTART;TZID=Europe/Berlin:{day:%Y%m%d}T{8 + number % 10:02}3000",
                f"DTEND;TZID=Europe/Berlin:{day:%Y%m%d}T{9 + number % 10:02}3000",
                *(["RRULE:FREQ=WEEKLY;COUNT=10"] if number % RECURRING == 0 else []),
                "DTSTAMP:20261101T080000Z",
                f"UID:event-{number}@example.com",
                "CREATED:20260101T080000Z",
                "DESCRIPTION:A text that is a bit longer and says what is to be done\\, with",
                "  a folded line",
                "LAST-MODIFIED:20260901T080000Z",
                "LOCATION:Room 12",
                "SEQUENCE:0",
                "STATUS:CONFIRMED",
                f"SUMMARY:Meeting {number}",
                "TRANSP:OPAQUE",
                "ORGANIZER;CN=Anna:mailto:anna@example.com",
                "ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=ACCEPTED;CN=bob@exa",
                " mple.com;X-NUM-GUESTS=0:mailto:bob@example.com",
                "END:VEVENT",
            ]
            file.write("\r\n".join([*lines, ""]))
        file.write("END:VCALENDAR\r\n")


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    goal = at_most(60, SECONDS)
    figures = [
        Figure("remind_plan", "a calendar planned, from file to table", goal, unit=SECONDS),
        Figure("remind_import", "the same, sent", unit=SECONDS),
        Figure("remind_again", "the same, imported again", unit=SECONDS),
        Figure("remind_memory", "maximal memory of the process", unit=" MB"),
        Figure("remind_kept", "its plan in Redis", unit=BYTES),
    ]
    return [Measurement("remind", reminding, figures, once=True)]
