"""`delayq top`: what fits on a screen, what its keys do, how little it asks of Redis, and a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import struct
import sys
import termios
import time
from contextlib import contextmanager

import pytest
from rich.console import Console

from delayq import DelayQueue, Reject
from delayq.broker.stored_presence import HourCounts, HoursReply, write_counts
from delayq.cli.queues.top_screen import MAX_COUNTED, TopFigures, TopScreen
from delayq.cli.support.session import Session
from delayq.queue.inspecting.readings import mean_rates
from tests.cli.conftest import PATIENCE, terminal
from tests.support.processes import Process
from tests.support.waiting import wait_until

ROW = re.compile(r"^(?:mails|orders|q\d+)\b.*")


@pytest.fixture
def session(redis_url):
    made = Session(redis_url, "delayq", None)
    yield made
    made.close()


@pytest.fixture
def queues(redis_url):
    """Two queues: `mails` with a message in each of several states, and `orders` with one that waits."""
    with DelayQueue("mails", url=redis_url) as mails, DelayQueue("orders", url=redis_url) as orders:
        mails.send_delay_msg("later", "1h")
        orders.send_delay_msg("later", "1h")
        yield mails, orders


@pytest.fixture
def screen(session, queues):
    made = TopScreen(TopFigures(session, session.queue_names), session)
    made.read()
    return made


def look(screen, width=80, height=24):
    """Return the lines of the screen; no line is longer than it is wide."""
    printer = Console(width=width, height=height, force_terminal=True, color_system=None, legacy_windows=False)
    with printer.capture() as captured:
        printer.print(screen, end="", height=height)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in captured.get().split("\n")]
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    return lines


def press(screen, *keys):
    """Press keys, and do what they ask for."""
    for key in keys:
        if act := screen.press(key):
            act()


def tell(redis_client, queue, running):
    """Store what a consumer has told 5 s ago: the ids that run, and for how long they did (ms)."""
    now = queue.stats().at.timestamp() * 1000
    entry = {"host": "vm", "pid": 7, "version": "1.0", "queues": [queue.name], "served": 1, "concurrency": 10}
    entry |= {"every": 10_000, "up": 3_600_000, "held": len(running), "running": running}
    redis_client.hset(f"delayq:{{{queue.name}}}:workers", "vm", json.dumps(entry))
    redis_client.zadd(f"delayq:{{{queue.name}}}:beats", {"vm": now + 25_000})


def test_says_that_it_reads_until_it_has_read(session):
    made = TopScreen(TopFigures(session, session.queue_names), session)
    assert "reading …" in look(made)
    made.read()
    assert "reading …" not in look(made)


def test_shows_each_queue_with_its_figures(screen, queues, session):
    titles, mails, orders, *_ = look(screen)
    assert titles.split() == [
        "queue", "pending", "due", "active", "retry", "dead", "in/s", "out/s", "fail/s", "lag", "workers",
    ]  # fmt: skip
    assert (mails.split(), orders.split()) == (
        ["mails", *"10000–", "~0", "~0", "0"],
        ["orders", *"10000–", "~0", "~0", "0"],
    )
    before = screen._figures.queues["mails"].stats.at
    queues[0].send_many(range(12_345), delay="2h")
    screen.read()
    figures = screen._figures.queues["mails"]
    cells = look(screen)[1].split()
    assert cells[:2] == ["mails", "12k"]
    assert figures.rates.sent == pytest.approx(12_345 / (figures.stats.at - before).total_seconds())
    assert look(screen)[-1].startswith("q quit")
    assert any(line.startswith("runs for message of mails,") for line in look(screen))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 12), (200, 60)])
def test_fits_into_the_terminal(screen, queues, redis_client, width, height):
    mails, _ = queues
    tell(redis_client, mails, [[f"a-message-with-a-long-id-{n:03}", 90_000 - n] for n in range(40)])
    for n in range(30):
        redis_client.sadd("delayq:queues", f"q{n:02}")
        redis_client.hset(f"delayq:{{q{n:02}}}:meta", "schema", 1)
    mails.pause(reason="a reason that is as long as the users of a terminal would like it to be, and longer")
    screen._figures._names_due = 0.0
    screen.read()
    lines = look(screen, width, height)
    assert sum(bool(ROW.match(line)) for line in lines) >= 3
    assert "a-message-with-a-long-id-000" in "\n".join(lines)
    press(screen, "j")
    assert look(screen, width, height)[-1].startswith("q quit")


def test_says_what_is_wrong_with_the_selected_queue(screen, queues, redis_client):
    mails, _ = queues
    mails.pause(reason="deploy")
    redis_client.delete("delayq:{orders}:pending")
    redis_client.set("delayq:{orders}:pending", "no zset")
    screen.read()
    assert "mails: paused until it is resumed: deploy" in look(screen)
    assert look(screen)[1].split()[-2:] == ["paused", "0"]
    mails.resume()
    mails.pause(name="letter")
    mails.send_delay_msg(1, name="letter")
    with mails.lease() as held:
        assert held is None
    screen.read()
    assert "mails: 1 throttled, by a limit or a paused name" in look(screen)
    press(screen, "j")
    screen.read()
    assert any(line.startswith("orders: ") and "WRONGTYPE" in line for line in look(screen))


def test_says_what_a_queue_that_stands_still_waits_for(screen, queues, redis_client):
    mails, _ = queues
    mails.send_delay_msg("due")
    tell(redis_client, mails, [["m", 5_000]])
    wait_until(lambda: screen.read() and mails.stats().lag.total_seconds() >= 1.2)
    screen.read()
    (line,) = (line for line in look(screen, 120) if line.startswith("mails: due"))
    assert line.startswith("mails: due, and waiting for a free consumer: 1 message, the first for ")
    assert line.endswith("; 1 consumer of 10 places in all, with 1 held")


def test_says_that_there_is_no_queue(session):
    screen = TopScreen(TopFigures(session, list), session)
    screen.read()
    assert look(screen)[1] == "no queues: a queue is shown once a message was sent to it"
    press(screen, "p", "r", "d", "c", "j", "k", "tab", "j", "c")
    assert look(screen)[-1].startswith("q quit")


def test_pauses_and_resumes_once_it_is_confirmed(screen, queues):
    mails, orders = queues
    press(screen, "j", "p")
    assert look(screen)[-1] == "pause orders? [y/N]"
    press(screen, "n")
    assert orders.counts().paused is None
    press(screen, "p", "y")
    assert look(screen)[-1] == "pause orders: paused until it is resumed: delayq top"
    assert (orders.counts().paused.reason, mails.counts().paused) == ("delayq top", None)
    screen.read()
    press(screen, "p", "Y")
    assert look(screen)[-1] == "resume orders: resumed"
    assert orders.counts().paused is None


def test_makes_retries_due_and_sends_the_dead_letter_again(screen, queues):
    mails, _ = queues
    mails.send_delay_msg("fails", 0)
    mails.send_delay_msg("dies", 0)

    @mails.callback
    def callback(message):
        if message.payload == "dies":
            raise Reject("no")
        return False

    mails.run(burst=True)
    assert (mails.counts().backoff, mails.counts().dead) == (1, 1)
    press(screen, "r", "y")
    assert look(screen)[-1] == "make the retries of mails due now: 1 message made due"
    press(screen, "d", "y")
    assert look(screen)[-1] == "send the dead letter of mails again: 1 message sent again"
    counts = mails.counts()
    assert (counts.backoff, counts.dead, counts.pending + counts.ready) == (0, 0, 3)


def test_asks_the_message_that_is_selected_to_stop(screen, queues, redis_client):
    mails, _ = queues
    mails.send_delay_msg("a", 0, id="m-8")
    (lease,) = mails.lease(1)
    tell(redis_client, mails, [["m-7", 90_000], ["m-8", 10_000]])
    screen.read()
    shown = [line.split() for line in look(screen) if "vm:7" in line]
    assert [line[-2:] for line in shown] == [["m-7", "vm:7"], ["m-8", "vm:7"]]
    press(screen, "c")
    assert look(screen)[-1].startswith("q quit")  # no message is selected
    press(screen, "tab", "c")
    assert look(screen)[-1] == "ask m-7 of mails to stop? [y/N]"
    press(screen, "n", "j", "c", "y")
    assert look(screen)[-1] == "ask m-8 of mails to stop: stopping"
    assert lease.extend() is not None


def test_action_that_is_refused_is_shown(screen, queues, redis_client):
    redis_client.delete("delayq:{mails}:meta")
    redis_client.set("delayq:{mails}:meta", "no hash")
    press(screen, "p", "y")
    assert "WRONGTYPE" in look(screen)[-1]


@pytest.mark.parametrize("height", [24, 50])
def test_first_look_fills_every_row(session, redis_client, redis_url, height):
    hour = int(time.time()) // 3600
    done = write_counts(HourCounts(delivered=7_200_000, acked=7_200_000, nacked=720_000, rejected=7_200))
    for n in range(60):
        redis_client.sadd("delayq:queues", f"q{n:02}")
        redis_client.hset(f"delayq:{{q{n:02}}}:meta", "schema", 1)
        redis_client.hset(f"delayq:{{q{n:02}}}:history", mapping={str(hour): done, str(hour - 1): done})
    screen = TopScreen(TopFigures(session, session.queue_names), session, height)
    assert screen.read() <= 1 + 3 + MAX_COUNTED
    rows = [line.split() for line in look(screen, height=height) if ROW.match(line)]
    assert len(rows) >= height - 6
    for row in rows:
        name, *numbers, sent, acked, failed, workers = row
        assert (numbers, sent, workers) == ([*"00000"], "–", "0"), name
        assert re.fullmatch(r"~(\d+k?|\d+\.\dM)", acked), name
        assert re.fullmatch(r"~[1-9]\S*", failed), name
    screen.read()
    assert screen._figures.queues["q00"].rates is not None
    assert look(screen, height=height)[1].split()[6:9] == ["0", "0", "0"]


@pytest.mark.table(
    "minutes, counts, rates",
    [
        (30, [HourCounts(acked=3600, nacked=1800, rejected=1800), HourCounts(acked=10**9)], (2, 2)),
        (5, [HourCounts(acked=100), HourCounts(acked=3800)], (1, 0)),
        (5, [None, None], (0, 0)),
        (0, [HourCounts(), HourCounts(acked=3600)], (1, 0)),
    ],
)
def test_mean_rates_are_those_of_this_hour_or_also_of_the_last(minutes, counts, rates):
    now = 3_600_000 * 500_000 + 60_000 * minutes
    assert mean_rates(HoursReply(now, counts, HourCounts())) == pytest.approx(rates, rel=1e-3)


def test_row_that_comes_into_view_is_read_at_the_next_look(session, redis_client):
    for n in range(40):
        redis_client.sadd("delayq:queues", f"q{n:02}")
        redis_client.hset(f"delayq:{{q{n:02}}}:meta", "schema", 1)
    screen = TopScreen(TopFigures(session, session.queue_names), session, 24)
    screen.read()
    look(screen)
    press(screen, *"j" * 39)
    look(screen)
    screen.read()
    rows = [line.split() for line in look(screen) if ROW.match(line)]
    assert rows[-1][0] == "q39"
    assert all(len(row) == 10 for row in rows), rows


def test_reads_many_queues_in_turn_and_counts_its_commands(session, redis_client, redis_url):
    for n in range(30):
        with DelayQueue(f"q{n:02}", url=redis_url) as queue:
            queue.send_delay_msg(n, "1h")
    screen = TopScreen(TopFigures(session, session.queue_names), session)
    assert screen.read() <= 1 + 3 + MAX_COUNTED
    look(screen)
    screen.read()
    redis_client.config_resetstat()
    counted = sum(screen.read() for _ in range(4))
    calls = sum(stat["calls"] for name, stat in redis_client.info("commandstats").items() if "evalsha" in name)
    assert counted == calls == 4 * (3 + MAX_COUNTED)
    rows = [line.split() for line in look(screen) if ROW.match(line)]
    assert len(rows) > MAX_COUNTED
    assert all(row[1] == "1" for row in rows), rows


@contextmanager
def running_top(redis_url, *arguments, env=None):
    """Run it in a terminal of 80 × 24; yields the process and a function that waits for a text in its output."""
    with terminal() as (ours, theirs):
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        command = [sys.executable, "-m", "delayq", "top", *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        environment |= {"DELAYQ_URL": redis_url, "TERM": "xterm", **(env or {})}
        process = Process(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        seen = bytearray()

        def until(text):
            end = time.monotonic() + PATIENCE
            while text.encode() not in seen:
                assert time.monotonic() < end, bytes(seen[-3000:])
                if select.select([ours], [], [], 0.1)[0]:
                    seen.extend(os.read(ours, 65_536))
            seen.clear()

        yield process, lambda text: os.write(ours, text.encode()), until, theirs


def test_in_a_terminal(redis_url, queues):
    mails, _ = queues
    with running_top(redis_url, "--queues", "m*") as (process, write, until, _):
        until("pending")
        until("mails")
        write("p")
        until("pause mails? [y/N]")
        write("y")
        until("pause mails: paused until it is resumed")
        assert mails.counts().paused.reason == "delayq top"
        write("q")
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_the_terminal_is_as_before(redis_url, queues, number, code):
    with running_top(redis_url, "mails") as (process, _, until, end):
        until("mails")
        process.send_signal(number)
        assert process.wait(PATIENCE) == code
        assert termios.tcgetattr(end)[3] & termios.ICANON
        assert termios.tcgetattr(end)[3] & termios.ECHO


def test_without_a_terminal_it_is_a_usage_error(cli):
    ended = cli("top")
    assert (ended.code, ended.out) == (2, "")
    assert "top needs a terminal: without one, use delayq stats QUEUE --watch" in ended.line
    ended = cli("top", "mails", "--queues", "m*")
    assert (ended.code, "not both" in ended.line) == (2, True)
