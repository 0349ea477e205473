"""Signals to a program that calls `run`: the first lets running callbacks finish, the second cuts them off."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from delayq import DelayQueue
from tests.behaviour.places import everywhere
from tests.support.processes import PATIENCE, Process

BLOCKING = """
import signal, sys
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], nack_delay=60)

@queue.callback
def work(message):
    print("started", flush=True)
    sys.stdin.readline()

queue.run()
print("left", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
"""
ASYNCIO = """
import asyncio, signal, sys
from delayq import AsyncDelayQueue

async def main():
    async with AsyncDelayQueue("reminders", url=sys.argv[1], nack_delay=60) as queue:
        @queue.callback
        async def work(message):
            print("started", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

        before = signal.getsignal(signal.SIGINT)
        await queue.run()
        same = signal.getsignal(signal.SIGINT) is before
        print("left", same and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)

asyncio.run(main())
"""
PROGRAMS = pytest.mark.parametrize("program", [BLOCKING, ASYNCIO], ids=["blocking", "asyncio"])


@pytest.fixture
def reminders(redis_url):
    with DelayQueue("reminders", url=redis_url) as queue:
        yield queue


def started(program, url, **streams):
    command = [sys.executable, "-c", program, url]
    process = Process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **streams)
    assert process.stdout.readline() == b"started\n"
    return process


def read_until(stream, line):
    seen = []
    while not seen or seen[-1] != f"{line}\n".encode():
        seen.append(stream.readline())
        assert seen[-1], seen


@pytest.mark.long
@PROGRAMS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_lets_a_running_callback_finish(reminders, redis_url, program, number):
    reminders.send_delay_msg("slow")
    with started(program, redis_url) as process:
        process.send_signal(number)
        out, _ = process.communicate(b"go on\n", PATIENCE)
    assert (process.returncode, out) == (0, b"left True\n")
    assert reminders.stats().totals["acked"] == 1


SAYS = "{}: finishing running callbacks for up to 30s; another signal cuts them off"


@pytest.mark.long
@PROGRAMS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_says_how_long_it_waits_to_a_program_without_logging(reminders, redis_url, program, number):
    reminders.send_delay_msg("slow")
    with started(program, redis_url, stderr=subprocess.PIPE) as process:
        process.send_signal(number)
        read_until(process.stderr, SAYS.format(number.name))
        _, err = process.communicate(b"go on\n", PATIENCE)
    assert process.returncode == 0
    assert b"finishing running callbacks" not in err


ENDLESS = pytest.mark.parametrize(
    "program",
    [
        BLOCKING.replace("sys.stdin.readline()", "__import__('time').sleep(60)"),
        ASYNCIO.replace("asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)", "asyncio.sleep(60)"),
    ],
    ids=["blocking", "asyncio"],
)


@pytest.mark.long
@ENDLESS
def test_second_signal_cuts_callbacks_off(reminders, redis_url, program):
    reminders.send_delay_msg("endless", id="m")
    with started(program, redis_url) as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert out == b""
    assert process.returncode in (1, -signal.SIGINT)  # by the signal that was handled last
    assert (reminders.get("m").snoozes, reminders.get("m").attempts) == (1, 0)


@everywhere
def test_run_puts_the_handlers_back_and_keeps_those_of_the_program(queue):
    seen = []
    own = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        handler = signal.getsignal(signal.SIGTERM)
        queue.callback(lambda message: seen.append(signal.getsignal(signal.SIGTERM)))
        queue.send_delay_msg("hello")
        before = signal.getsignal(signal.SIGINT)
        queue.run(burst=True)
        assert seen == [handler]
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGTERM, own)


def test_run_in_another_thread_handles_no_signals(reminders):
    seen = []
    reminders.callback(lambda message: seen.append(signal.getsignal(signal.SIGTERM)))
    reminders.send_delay_msg("hello")
    thread = threading.Thread(target=lambda: reminders.run(burst=True))
    thread.start()
    thread.join(PATIENCE)
    assert seen == [signal.getsignal(signal.SIGTERM)]
