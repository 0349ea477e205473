"""The output of the demo, with and without a terminal."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console

from delayq.demo.holidays.balance import DeliveryLog, KilledWorker, make_balance
from delayq.demo.holidays.demo_screen import DemoProgress, DemoScreen
from delayq.demo.holidays.demo_worker import EndedReport, StartedReport
from delayq.demo.holidays.holiday_reminders import HolidayReminder

EASTER = HolidayReminder(
    "PT",
    "Sexta-feira Santa",
    date(2027, 3, 26),
    datetime(2027, 3, 25, 9, tzinfo=ZoneInfo("Europe/Lisbon")),
    "Europe/Lisbon",
)
STARTED = StartedReport(1, "PT-2027-03-26-1", 7, 1, 0, 0.002)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def open_screen(file, width):
    return DemoScreen(Console(file=file, width=width, color_system=None, force_terminal=file.isatty(), highlight=False))


def progress(share=0.5):
    log = DeliveryLog()
    log.add(STARTED)
    return DemoProgress(
        share=share,
        today=datetime(2027, 5, 20, tzinfo=UTC),
        sent=3485,
        next_due=EASTER,
        in_flight=3,
        dead=4,
        workers=2,
        kills=[KilledWorker(1, "worker 1 (pid 4711)", {})],
        log=log,
    )


def test_delivery_is_a_plain_line_without_a_terminal():
    file = io.StringIO()
    with open_screen(file, 10_000) as screen:
        screen.show(EASTER, STARTED)
        screen.refresh(progress(0.05))
    zone = "Europe/Lisbon".ljust(30)
    assert file.getvalue() == f"25 Mar 09:00 {zone}  PT  Sexta-feira Santa  +2 ms\n"


def test_panel_is_an_occasional_line_without_a_terminal():
    file = io.StringIO()
    with open_screen(file, 10_000) as screen:
        for share in (0.05, 0.1, 0.15, 0.19, 0.2):
            screen.refresh(progress(share))
    lines = file.getvalue().splitlines()
    assert [line.split()[4] for line in lines] == ["10%", "20%"]
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_panel_fits_the_terminal(width):
    file = Terminal()
    screen = open_screen(file, width)
    screen.refresh(progress())
    file.truncate(0)
    file.seek(0)
    console = Console(file=file, width=width, color_system=None)
    console.print(screen)
    lines = file.getvalue().splitlines()
    assert len(lines) == 7
    assert max(map(len, lines)) <= width
    assert "50%" in lines[1]
    assert "20 May 2027" in lines[1]
    for label in ("next due", "delivered", "lateness", "workers", "killed"):
        assert any(line.startswith(label) for line in lines)


def test_terminal_is_restored_at_the_end():
    file = Terminal()
    with open_screen(file, 80) as screen:
        screen.refresh(progress())
    shown = file.getvalue()
    assert shown.rindex("\x1b[?7h") > shown.rindex("\x1b[?7l")  # lines wrap again
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is there again


def test_dead_discarded_and_redelivered_messages_are_shown():
    file = io.StringIO()
    with open_screen(file, 10_000) as screen:
        screen.show(EASTER, EndedReport(1, "x", 7, "acked", 3))
        screen.show(EASTER, EndedReport(1, "x", 7, "failed", 1))
        screen.show(EASTER, EndedReport(1, "x", 7, "failed", 0))
        screen.show(EASTER, EndedReport(1, "x", 7, "discarded", 3))
        screen.show(EASTER, StartedReport(1, "x", 7, 2, 0, 0.3))
    endings = [line.split("Santa  ")[1] for line in file.getvalue().splitlines()]
    assert endings == ["dead letter", "discarded", "↻ +300 ms"]


@pytest.mark.parametrize("acked", [1, 0])
def test_balance_fits_80_columns_and_says_whether_it_adds_up(acked):
    log = DeliveryLog()
    log.add(STARTED)
    log.add(EndedReport(1, STARTED.id, 7, "acked", 3))
    kills = [KilledWorker(1, "worker 1 (pid 1234567)", {})]
    final = {"sent": 1, "acked": acked, "dead": 0, "discarded": 0, "left": 0}
    balance = make_balance({STARTED.id: 0}, log, final, set(), kills, countries=1)
    file = io.StringIO()
    open_screen(file, 80).balance(balance, kills)
    assert max(map(len, file.getvalue().splitlines())) <= 80
    assert ("It adds up: 1 sent = 1 acked" in file.getvalue()) is bool(acked)
    assert ("It does not add up" in file.getvalue()) is not bool(acked)
